// A server that makes a compressed document for each request and keeps the latest of each session
// in a Buffer of its own (docs/services/node.md). zlib and Buffers use malloc.
const http = require("http"), zlib = require("zlib");
const sessions = new Map();
http.createServer((request, response) => {
  const id = Number(request.url.split("/")[2]);
  const visits = Array.from({ length: id % 60 }, (_, n) => (
    { page: `/item/${n * id}`, seconds: n }));
  const body = Buffer.from(JSON.stringify({ id, visits }));
  sessions.set(id, Buffer.allocUnsafeSlow(body.length).fill(body));
  zlib.gzip(body, (error, packed) => {
    response.writeHead(200, { "Content-Type": "application/json", "Content-Encoding": "gzip" });
    response.end(packed);
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
