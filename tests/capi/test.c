/* Tests liboffld from C. Usage: test DIR ROUNDS. tests/suite/capi.rs creates and describes the files in DIR. ROUNDS is the number of
 * damaged variants of each file. Exits with 0 if all checks hold, and prints failed checks to standard error. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int failures;

bool is(offld_string text, const char *expected)
{
    return text.data != NULL && text.size == strlen(expected) && memcmp(text.data, expected, text.size + 1) == 0;
}

bool has(offld_string text, const char *part)
{
    return text.data != NULL && strlen(text.data) == text.size && strstr(text.data, part) != NULL;
}

unsigned char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    long end;

    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) {
        perror(path);
        exit(2);
    }
    *size = (size_t)end;
    bytes = malloc(*size + 1);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size)
        exit(2);
    fclose(file);
    return bytes;
}

/* The three images in `fat.o`, which tests/suite/capi.rs creates. */
static const struct expected {
    uint32_t kinds;
    const char *triple, *target, *bytes;
} EXPECTED[] = {
    {OFFLD_KIND_HIP, "amdgcn-amd-amdhsa", "gfx90a:xnack+", "AMD"},
    {OFFLD_KIND_CUDA, "nvptx64-nvidia-cuda", "sm_80", "NVIDIA"},
    {OFFLD_KIND_OPENMP, "x86_64-pc-linux-gnu", "", ""},
};

void check_fat(const offld_report *report, const char *name)
{
    size_t size;

    CHECK(is(offld_report_name(report), name));
    CHECK(is(offld_report_type(report), "elf-object"));
    CHECK(offld_report_error_count(report) == 0);
    CHECK(offld_report_image_count(report) == 3);
    CHECK(offld_report_image(report, 3) == NULL);
    for (size_t i = 0; i < 3; i++) {
        const struct expected *expected = &EXPECTED[i];
        const offld_image *image = offld_report_image(report, i);
        const offld_step *section = offld_image_step(image, 0), *container = offld_image_step(image, 1);
        const uint8_t *data = NULL;

        CHECK(offld_image_index(image) == i);
        CHECK(offld_image_kinds(image) == expected->kinds);
        CHECK(is(offld_image_triple(image), expected->triple));
        CHECK(is(offld_image_target(image), expected->target));
        CHECK(is(offld_image_section(image), ".llvm.offloading"));
        CHECK(is(offld_image_container(image), "offload-binary"));
        CHECK(is(offld_image_stored_as(image), "object"));
        CHECK(offld_image_sha256(image).size == 64);
        CHECK(offld_image_size(image) == strlen(expected->bytes));
        CHECK(offld_image_offset(image) != OFFLD_NONE && offld_image_offset(image) > 64);
        CHECK(offld_image_compressed_size(image) == OFFLD_NONE);
        CHECK(offld_image_member_count(image) == 0 && is(offld_image_member(image, 0), ""));
        CHECK(offld_image_step_count(image) == 2 && offld_image_step(image, 2) == NULL);
        CHECK(is(offld_step_kind(section), "section") && is(offld_step_name(section), ".llvm.offloading"));
        CHECK(is(offld_step_kind(container), "container") && is(offld_step_name(container), "offload-binary"));
        CHECK(offld_step_version(container) == 1 && offld_step_plain_size(container) == OFFLD_NONE);
        CHECK(offld_step_offset(container) >= offld_step_offset(section) && offld_step_size(container) < offld_step_size(section));
        CHECK(offld_image_bytes(image, &data, &size, NULL) == OFFLD_STATUS_OK);
        CHECK(data != NULL && size == strlen(expected->bytes) && memcmp(data, expected->bytes, size) == 0);
        for (size_t s = 0; s < offld_image_string_count(image); s++) {
            if (is(offld_image_string_key(image, s), "triple"))
                CHECK(is(offld_image_string_value(image, s), expected->triple));
        }
    }
}

/* The same report by path, by descriptor and from memory. The report stays valid without the caller's memory and descriptor. */
static void every_way_in(void)
{
    offld_report *report = NULL;
    offld_error *error = NULL;
    offld_buffer *json = NULL;
    size_t size;
    unsigned char *bytes = contents("fat.o", &size);
    int descriptor = open("fat.o", O_RDONLY), pipes[2];

    CHECK(offld_open_path("fat.o", NULL, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    check_fat(report, "fat.o");
    CHECK(offld_report_json(report, &json, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(offld_buffer_size(json) > 100 && offld_buffer_data(json)[offld_buffer_size(json)] == 0);
    CHECK(strstr((const char *)offld_buffer_data(json), "\"target\":\"gfx90a:xnack+\"") != NULL);
    offld_buffer_free(json);
    offld_report_free(report);

    CHECK(offld_open_fd(descriptor, NULL, NULL, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(close(descriptor) == 0);
    check_fat(report, "descriptor");
    offld_report_free(report);

    CHECK(pipe(pipes) == 0 && size < 60000 && write(pipes[1], bytes, size) == (ssize_t)size && close(pipes[1]) == 0);
    CHECK(offld_open_fd(pipes[0], "a pipe", NULL, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(close(pipes[0]) == 0);
    CHECK(offld_report_image_count(report) == 3 && offld_image_offset(offld_report_image(report, 0)) == OFFLD_NONE);
    offld_report_free(report);

    CHECK(offld_open_memory(bytes, size, "some bytes", NULL, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    memset(bytes, 0, size);
    free(bytes);
    check_fat(report, "some bytes");
    offld_report_free(report);

    CHECK(offld_open_memory(NULL, 0, NULL, NULL, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(is(offld_report_type(report), "empty") && offld_report_image_count(report) == 0);
    offld_report_free(report);
}

/* A program or library that clang has linked, with a real image and kernels. */
static void finished(const char *path, const char *type)
{
    offld_options *options = offld_options_new();
    offld_report *report = NULL;
    offld_error *error = NULL;
    const offld_image *image;
    const offld_registration *registration;
    const uint8_t *data = NULL;
    size_t size = 0, whole;
    unsigned char *file = contents(path, &whole);

    offld_options_set_kernels(options, true);
    CHECK(offld_open_path(path, options, &report, &error) == OFFLD_STATUS_OK && error == NULL);
    offld_options_free(options);
    CHECK(is(offld_report_type(report), type));
    CHECK(offld_report_error_count(report) == 0 && offld_report_image_count(report) == 1);
    image = offld_report_image(report, 0);
    CHECK(offld_image_kinds(image) == OFFLD_KIND_OPENMP && is(offld_image_format(image), "elf"));
    CHECK(is(offld_image_triple(image), "x86_64-pc-linux-gnu") && is(offld_image_machine(image), "x86-64"));
    CHECK(offld_image_kernel_count(image) == 1 && has(offld_image_kernel(image, 0), "__omp_offloading_"));
    CHECK(offld_image_bytes(image, &data, &size, &error) == OFFLD_STATUS_OK && size == offld_image_size(image) && size > 1000);
    CHECK(offld_image_offset(image) + size <= whole && memcmp(file + offld_image_offset(image), data, size) == 0);
    free(file);

    CHECK(offld_report_registration_count(report) == 1 && offld_report_registration(report, 1) == NULL);
    registration = offld_report_registration(report, 0);
    CHECK(is(offld_registration_runtime(registration), "openmp"));
    CHECK(is(offld_registration_symbol(registration), "__tgt_register_lib"));
    CHECK(is(offld_registration_found(registration), "library") && offld_registration_member_count(registration) == 0);
    CHECK(offld_registration_library_count(registration) == 1 && has(offld_registration_library(registration, 0), "libomptarget.so"));
    offld_report_free(report);

    /* With a descriptor alone, offld cannot find the file's libraries. */
    CHECK(offld_open_fd(open(path, O_RDONLY), path, NULL, &report, &error) == OFFLD_STATUS_OK);
    CHECK(offld_report_registration_count(report) == 1 && offld_report_image_count(report) == 1);
    CHECK(offld_registration_library_count(offld_report_registration(report, 0)) == 0);
    CHECK(offld_image_kernel_count(offld_report_image(report, 0)) == 0);
    offld_report_free(report);
}

/* The received bytes, and the number of calls after which the callback stops. */
struct gathered {
    unsigned char bytes[1 << 17];
    size_t size, calls, most;
};

static int gather(void *context, const uint8_t *data, size_t size)
{
    struct gathered *all = context;

    if (all->calls++ == all->most)
        return 42;
    memcpy(all->bytes + all->size, data, size);
    all->size += size;
    return 0;
}

static void extracted(void)
{
    static struct gathered all;
    offld_report *report = NULL;
    offld_error *error = NULL;
    const offld_image *image;
    const uint8_t *data = NULL;
    size_t size = 0, written;
    int descriptor = open("by-descriptor", O_CREAT | O_TRUNC | O_RDWR, 0600);
    unsigned char *file;

    CHECK(offld_open_path("program", NULL, &report, &error) == OFFLD_STATUS_OK);
    image = offld_report_image(report, 0);
    CHECK(offld_image_bytes(image, &data, &size, &error) == OFFLD_STATUS_OK && size <= sizeof all.bytes);
    all.most = 1000;
    CHECK(offld_image_write(image, gather, &all, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(all.size == size && memcmp(all.bytes, data, size) == 0);
    all.most = all.calls;
    CHECK(offld_image_write(image, gather, &all, &error) == OFFLD_STATUS_STOPPED);
    CHECK(offld_error_status(error) == OFFLD_STATUS_STOPPED && has(offld_error_message(error), "42"));
    offld_error_free(error);

    CHECK(write(descriptor, "head", 4) == 4);
    CHECK(offld_image_write_fd(image, descriptor, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(close(descriptor) == 0);
    file = contents("by-descriptor", &written);
    CHECK(written == size + 4 && memcmp(file + 4, data, size) == 0);
    free(file);
    CHECK(offld_image_write_path(image, "by-path", &error) == OFFLD_STATUS_OK && error == NULL);
    file = contents("by-path", &written);
    CHECK(written == size && memcmp(file, data, size) == 0);
    free(file);

    descriptor = open("by-path", O_RDONLY);
    CHECK(offld_image_write_fd(image, descriptor, &error) == OFFLD_STATUS_IO && offld_error_system(error) != 0);
    offld_error_free(error);
    CHECK(close(descriptor) == 0);
    CHECK(offld_image_write_path(image, "no/such/folder", &error) == OFFLD_STATUS_IO && has(offld_error_message(error), "no/such/folder"));
    offld_error_free(error);
    offld_report_free(report);

    /* With headers only, the report has descriptions and no bytes. */
    offld_options *options = offld_options_new();
    offld_options_set_headers_only(options, true);
    CHECK(offld_open_path("fat.o", options, &report, &error) == OFFLD_STATUS_OK);
    image = offld_report_image(report, 0);
    CHECK(is(offld_image_target(image), "gfx90a:xnack+") && is(offld_image_sha256(image), ""));
    CHECK(offld_image_bytes(image, &data, &size, &error) == OFFLD_STATUS_ARGUMENT && error != NULL);
    offld_error_free(error);
    offld_options_free(options);
    offld_report_free(report);
}

/* A compressed archive: the report has all steps around the images, and the limit on decompressed data applies. */
static void compressed(void)
{
    offld_options *options = offld_options_new();
    offld_report *report = NULL;
    offld_error *error = NULL;
    const offld_image *image;
    const uint8_t *data = NULL;
    size_t size = 0;
    unsigned char *bytes = contents("fat.a.gz", &size);

    CHECK(offld_open_memory(bytes, size, "fat.a.gz", NULL, &report, &error) == OFFLD_STATUS_OK && offld_report_error_count(report) == 0);
    CHECK(is(offld_report_type(report), "gzip") && offld_report_image_count(report) == 3);
    image = offld_report_image(report, 1);
    CHECK(offld_image_member_count(image) == 1 && is(offld_image_member(image, 0), "fat.o"));
    CHECK(is(offld_step_kind(offld_image_step(image, 0)), "compressed") && is(offld_step_compression(offld_image_step(image, 0)), "gzip"));
    CHECK(is(offld_step_kind(offld_image_step(image, 1)), "member") && is(offld_step_name(offld_image_step(image, 1)), "fat.o"));
    CHECK(offld_image_offset(image) == OFFLD_NONE);
    CHECK(offld_image_bytes(image, &data, &size, &error) == OFFLD_STATUS_OK && size == 6 && memcmp(data, "NVIDIA", 6) == 0);
    offld_report_free(report);
    free(bytes);

    offld_options_set_max_unpacked(options, 16);
    CHECK(offld_open_path("fat.a.gz", options, &report, &error) == OFFLD_STATUS_OK);
    CHECK(offld_report_image_count(report) == 0 && has(offld_report_error(report, 0), "16 bytes"));
    offld_report_free(report);
    offld_options_free(options);
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;

    if (rounds == 0 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: test FOLDER ROUNDS\n");
        return 2;
    }
    CHECK(offld_abi_version() == OFFLD_ABI_VERSION && offld_version().size >= 5);
    every_way_in();
    finished("program", "elf-executable");
    finished("library.so", "elf-shared");
    extracted();
    compressed();
    packages();
    comparisons();
    hostile_arguments();
    damaged(rounds);
    threads();
    return failures ? 1 : 0;
}
