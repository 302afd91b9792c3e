// Compiled to split.bc, which has two modules: clang++-22 -O1 -flto=thin -fsplit-lto-unit -fwhole-program-vtables -fvisibility=hidden -c
struct A {
  virtual int f();
};
int A::f() { return 1; }
int call(A *a) { return a->f(); }
