// A server that makes a JSON document for each request and keeps the latest of each session
// (docs/services/cpp.md).
#include <httplib.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

int main(int, char** arguments) {
  std::unordered_map<std::string, nlohmann::json> sessions;
  std::mutex mutex;
  httplib::Server server;
  server.set_tcp_nodelay(true);
  server.set_keep_alive_max_count(1'000'000);
  server.Get(R"(/session/(\d+))",
             [&](const httplib::Request& request, httplib::Response& response) {
               const int number = std::stoi(request.matches[1]);
               nlohmann::json session{{"id", number}, {"visits", nlohmann::json::array()}};
               for (int n = 0; n < number % 60; n++)
                 session["visits"].push_back(
                     {{"page", "/item/" + std::to_string(n * number)}, {"seconds", n}});
               response.set_content(session.dump(), "application/json");
               const std::lock_guard lock(mutex);
               sessions[request.matches[1]] = std::move(session);
             });
  server.listen("127.0.0.1", std::stoi(arguments[1]));
}
