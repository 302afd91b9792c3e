/* A program without device code: everything is in libraries. */
int run_library();
int main() { return run_library(); }
