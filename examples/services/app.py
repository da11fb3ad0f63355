"""A WSGI app that makes a JSON document for each request and keeps the latest of each session
(docs/services/python.md)."""

import json

sessions = {}


def app(environment, start_response):
    number = int(environment["PATH_INFO"].split("/")[2])
    visits = [{"page": f"/item/{n * number}", "seconds": n} for n in range(number % 60)]
    body = json.dumps({"id": number, "visits": visits}).encode()
    sessions[number] = body
    start_response(
        "200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    )
    return [body]
