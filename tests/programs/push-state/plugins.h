#pragma once
#include <map>
#include <string>

inline std::map<std::string, int (*)(int)> &plugins() {
  static std::map<std::string, int (*)(int)> all;
  return all;
}
void tail(int *host);
