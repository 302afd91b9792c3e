// Another tool in the place of one of NVIDIA's: the real one, with more arguments and more output.
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char *args[argc + 2];
  int count = 0;
  const char *output = 0;
  args[count++] = "PROGRAM";
  if ("EXTRA"[0])
    args[count++] = "EXTRA";
  for (int at = 1; at < argc; at++) {
    args[count++] = argv[at];
    if ((!strcmp(argv[at], "-o") || !strcmp(argv[at], "--create")) && at + 1 < argc)
      output = argv[at + 1];
  }
  args[count] = 0;
  int child = fork();
  if (child == 0) {
    execv(args[0], args);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status)
    return 1;
  FILE *file = output ? fopen(output, "a") : 0;
  if (file) {
    fputs("TAIL", file);
    fclose(file);
  }
  return 0;
}
