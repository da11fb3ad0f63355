// A server that makes a compressed document for each request and keeps the latest of each session
// in a direct buffer (docs/services/jvm.md). zlib and direct buffers use malloc.
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.*;
import java.util.zip.GZIPOutputStream;

public class Server {
  public static void main(String[] arguments) throws Exception {
    var sessions = new ConcurrentHashMap<Integer, ByteBuffer>();
    var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
    var server = HttpServer.create(address, 100);
    server.createContext("/session/", exchange -> {
      int id = Integer.parseInt(exchange.getRequestURI().getPath().split("/")[2]);
      var body = new StringBuilder("{\"id\":" + id + ",\"visits\":[");
      for (int n = 0; n < id % 60; n++)
        body.append("{\"page\":\"/item/" + (long) n * id + "\",\"seconds\":" + n + "},");
      var packed = new ByteArrayOutputStream();
      try (var gzip = new GZIPOutputStream(packed)) {
        gzip.write(body.append("null]}").toString().getBytes());
      }
      sessions.put(id, ByteBuffer.allocateDirect(packed.size()).put(packed.toByteArray()));
      exchange.getResponseHeaders().set("Content-Encoding", "gzip");
      exchange.sendResponseHeaders(200, packed.size());
      try (var output = exchange.getResponseBody()) {
        packed.writeTo(output);
      }
    });
    server.setExecutor(Executors.newFixedThreadPool(16));
    server.start();
  }
}
