/* Packs OffloadBinaries, reads them back by every function, changes them and packs them again. */
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int append(void *context, const uint8_t *data, size_t size)
{
    return fwrite(data, 1, size, context) == size ? 0 : 1;
}

static offld_package *two_images(void)
{
    offld_package *package = offld_package_new();
    offld_error *error = NULL;
    size_t index = 9;

    CHECK(offld_package_add(package, (const uint8_t *)"cubin", 5, &index, &error) == OFFLD_STATUS_OK && index == 0);
    CHECK(offld_package_set_kinds(package, 0, OFFLD_KIND_CUDA, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_format(package, 0, OFFLD_FORMAT_CUBIN, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_string(package, 0, "triple", "nvptx64-nvidia-cuda", &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_string(package, 0, "arch", "sm_70", &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_string(package, 0, "arch", "sm_90", &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_add(package, (const uint8_t *)"BC\xc0\xde", 4, NULL, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_kinds(package, 1, OFFLD_KIND_OPENMP | OFFLD_KIND_HIP, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_flags(package, 1, 0x80000000u, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_set_string(package, 1, "triple", "amdgcn-amd-amdhsa", &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(offld_package_count(package) == 2);
    return package;
}

static void check_two(const offld_package *package)
{
    const offld_entry *cubin = offld_package_entry(package, 0), *code = offld_package_entry(package, 1);

    CHECK(offld_package_count(package) == 2 && offld_package_entry(package, 2) == NULL);
    CHECK(offld_entry_kinds(cubin) == OFFLD_KIND_CUDA && offld_entry_kinds(code) == (OFFLD_KIND_OPENMP | OFFLD_KIND_HIP));
    CHECK(offld_entry_format(cubin) == OFFLD_FORMAT_CUBIN && offld_entry_format(code) == OFFLD_FORMAT_BITCODE);
    CHECK(offld_entry_flags(cubin) == 0 && offld_entry_flags(code) == 0x80000000u);
    CHECK(is(offld_entry_triple(cubin), "nvptx64-nvidia-cuda") && is(offld_entry_arch(cubin), "sm_90"));
    CHECK(is(offld_entry_triple(code), "amdgcn-amd-amdhsa") && is(offld_entry_arch(code), ""));
    CHECK(offld_entry_string_count(cubin) == 2 && is(offld_entry_string_key(cubin, 1), "arch"));
    CHECK(is(offld_entry_string_value(cubin, 1), "sm_90") && is(offld_entry_string_value(cubin, 2), ""));
    CHECK(offld_entry_size(cubin) == 5 && memcmp(offld_entry_data(cubin), "cubin", 5) == 0);
    CHECK(offld_entry_size(code) == 4 && memcmp(offld_entry_data(code), "BC\xc0\xde", 4) == 0);
}

static void both_ways(uint32_t form, const char *path)
{
    offld_package *package = two_images(), *again = NULL;
    offld_buffer *buffer = NULL;
    offld_report *report = NULL;
    offld_error *error = NULL;
    size_t size, other;
    unsigned char *file;
    int descriptor = open("packed-by-descriptor", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    FILE *stream = fopen("packed-by-function", "wb");

    CHECK(offld_package_write_memory(package, form, &buffer, &error) == OFFLD_STATUS_OK && error == NULL);
    size = offld_buffer_size(buffer);
    CHECK(offld_package_write_path(package, form, path, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_write_fd(package, form, descriptor, &error) == OFFLD_STATUS_OK && close(descriptor) == 0);
    CHECK(offld_package_write(package, form, append, stream, &error) == OFFLD_STATUS_OK && fclose(stream) == 0);
    offld_package_free(package);
    const char *const all[] = {path, "packed-by-descriptor", "packed-by-function"};
    for (size_t i = 0; i < 3; i++) {
        file = contents(all[i], &other);
        CHECK(other == size && memcmp(file, offld_buffer_data(buffer), size) == 0);
        free(file);
    }

    CHECK(offld_package_read(offld_buffer_data(buffer), size, &again, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(offld_open_memory(offld_buffer_data(buffer), size, NULL, NULL, &report, &error) == OFFLD_STATUS_OK);
    CHECK(is(offld_report_type(report), "offload-binary") && offld_report_image_count(report) == 2);
    CHECK(is(offld_image_target(offld_report_image(report, 0)), "sm_90"));
    CHECK(is(offld_image_stored_as(offld_report_image(report, 0)), "cubin"));
    CHECK(offld_image_flags(offld_report_image(report, 1)) == 0x80000000u);
    CHECK(offld_step_version(offld_image_step(offld_report_image(report, 0), 0)) == form);
    offld_report_free(report);
    offld_buffer_free(buffer);
    check_two(again);

    /* Added entries do not invalidate the pointer to an entry. */
    const offld_entry *first = offld_package_entry(again, 0);
    for (int i = 0; i < 100; i++)
        CHECK(offld_package_add(again, NULL, 0, NULL, NULL) == OFFLD_STATUS_OK);
    CHECK(first == offld_package_entry(again, 0) && is(offld_entry_arch(first), "sm_90"));
    CHECK(offld_package_write_memory(again, form, &buffer, &error) == OFFLD_STATUS_OK);
    offld_package_free(again);
    CHECK(offld_package_read(offld_buffer_data(buffer), offld_buffer_size(buffer), &again, &error) == OFFLD_STATUS_OK);
    CHECK(offld_package_count(again) == 102 && offld_entry_size(offld_package_entry(again, 101)) == 0);
    offld_package_free(again);
    offld_buffer_free(buffer);
}

void packages(void)
{
    offld_package *package = NULL;
    offld_buffer *buffer = NULL;
    offld_error *error = NULL;
    size_t size;
    unsigned char *file = contents("of-llvm", &size);

    both_ways(OFFLD_PACK_SEPARATE, "packed");
    both_ways(OFFLD_PACK_SHARED, "packed-shared");

    /* A package from LLVM's tool. */
    CHECK(offld_package_read(file, size, &package, &error) == OFFLD_STATUS_OK && error == NULL);
    CHECK(offld_package_count(package) == 3 && is(offld_entry_arch(offld_package_entry(package, 0)), "gfx90a:xnack+"));
    CHECK(offld_entry_kinds(offld_package_entry(package, 0)) == OFFLD_KIND_HIP);
    offld_package_free(package);
    /* One byte less: the error has the offset of the end. */
    CHECK(offld_package_read(file, size - 1, &package, &error) == OFFLD_STATUS_MALFORMED && package == NULL);
    CHECK(offld_error_offset(error) != OFFLD_NONE && offld_error_offset(error) < size && offld_error_system(error) == 0);
    offld_error_free(error);
    free(file);
    CHECK(offld_package_read((const uint8_t *)"\x7f" "ELF", 4, &package, &error) == OFFLD_STATUS_MALFORMED);
    CHECK(has(offld_error_message(error), "not an offload binary") && offld_error_offset(error) == 0);
    offld_error_free(error);
    CHECK(offld_package_read(NULL, 0, &package, &error) == OFFLD_STATUS_MALFORMED);
    offld_error_free(error);

    /* A package without entries cannot be written. */
    package = offld_package_new();
    CHECK(offld_package_write_memory(package, OFFLD_PACK_SEPARATE, &buffer, &error) == OFFLD_STATUS_ARGUMENT && buffer == NULL);
    offld_error_free(error);
    offld_package_free(package);
}
