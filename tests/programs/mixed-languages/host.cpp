#include <string>
int host_only() { return static_cast<int>(std::string("without").size()); }
