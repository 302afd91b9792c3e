/* Lists the device images of a file, and the runtimes that it registers them with: list FILE. */
#include <inttypes.h>
#include <offld.h>
#include <stdio.h>

static void show(const offld_image *image)
{
    static const char *const names[] = {"openmp", "cuda", "hip", "sycl"};
    uint32_t kinds = offld_image_kinds(image);
    const char *between = " ";

    if (kinds & OFFLD_KIND_HOST)
        return;
    printf("%zu", offld_image_index(image));
    for (int bit = 0; bit < 4; bit++) {
        if (kinds & (1u << bit)) {
            printf("%s%s", between, names[bit]);
            between = "+";
        }
    }
    printf(" %s %s %s %" PRIu64 "\n", offld_image_triple(image).data, offld_image_target(image).data,
           offld_image_format(image).data, offld_image_size(image));
}

int main(int argc, char **argv)
{
    offld_report *report;
    offld_error *error;
    size_t faults;

    if (offld_open_path(argc == 2 ? argv[1] : NULL, NULL, &report, &error) != OFFLD_STATUS_OK) {
        fprintf(stderr, "list: %s\n", offld_error_message(error).data);
        offld_error_free(error);
        return 2;
    }
    for (size_t i = 0; i < offld_report_image_count(report); i++)
        show(offld_report_image(report, i));
    for (size_t i = 0; i < offld_report_registration_count(report); i++)
        printf("registers: %s\n", offld_registration_runtime(offld_report_registration(report, i)).data);
    faults = offld_report_error_count(report);
    for (size_t i = 0; i < faults; i++)
        fprintf(stderr, "list: %s\n", offld_report_error(report, i).data);
    offld_report_free(report);
    return faults ? 1 : 0;
}
