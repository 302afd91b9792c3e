/* Both functions run on the device. They return 1 if they ran on the host instead. */
#ifdef __cplusplus
extern "C" {
#endif
int scale(int count, int by, int *values);
int sum(int count, const int *values, int *result);
#ifdef __cplusplus
}
#endif
