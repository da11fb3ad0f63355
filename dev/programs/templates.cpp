#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <variant>
#include <vector>
template <int N>
struct Node {
  std::map<int, std::variant<std::string, std::vector<Node<N - 1>>>> all;
  int go() { return (int)all.size() + Node<N - 1>{}.go(); }
};
template <>
struct Node<0> {
  int go() { return 0; }
};
int main(int argc, char** argv) {
  std::regex r("a+b");
  std::function<int()> f = [] { return Node<40>{}.go(); };
  std::vector<std::string> v(argv, argv + argc);
  std::sort(v.begin(), v.end());
  return f() + (int)std::regex_match(v[0], r);
}
