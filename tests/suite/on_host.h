#ifdef __cplusplus
extern "C"
#endif
int printf(const char *, ...);
int is_on_host(void);
#pragma omp begin declare variant match(device={kind(host)})
static inline int is_on_host(void) { return 1; }
#pragma omp end declare variant
#pragma omp begin declare variant match(device={kind(nohost)})
static inline int is_on_host(void) { return 0; }
#pragma omp end declare variant
