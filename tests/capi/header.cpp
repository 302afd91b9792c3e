// Includes the header twice in C++ and uses it.
#include <offld.h>
#include <offld.h>
#include <string>

extern "C" int takes(void *context, const uint8_t *data, size_t size)
{
    static_cast<std::string *>(context)->append(reinterpret_cast<const char *>(data), size);
    return 0;
}

int main(int argc, char **argv)
{
    offld_report *report = nullptr;
    offld_error *error = nullptr;
    std::string bytes;
    offld_status status = offld_open_path(argc > 1 ? argv[1] : nullptr, nullptr, &report, &error);

    if (status == OFFLD_STATUS_OK)
        status = offld_image_write(offld_report_image(report, 0), takes, &bytes, &error);
    offld_error_free(error);
    offld_report_free(report);
    return status == OFFLD_STATUS_OK && bytes == "AMD" && OFFLD_NONE == UINT64_MAX ? 0 : 1;
}
