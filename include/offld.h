/*
 * liboffld: the device code that is in objects, programs, libraries, archives and containers, for C (docs/c-api.md).
 * Apache-2.0 WITH LLVM-exception.
 *
 * Handles. Every type but offld_string and offld_status is reached by its functions alone. What `offld_open_…`, `…_new`, `…_read` and
 * `…_json` give is the caller's, who frees it by the function of its type, once. What is asked of a handle (an image of a report, text,
 * bytes) belongs to that handle, and is valid until it is freed.
 *
 * Errors. A function that can fail returns an offld_status. `error` may be NULL; else `*error` is set by every call: to an error that
 * the caller frees, or to NULL. A result is NULL where there is an error. A function that only tells something returns what is said
 * of it (empty text, 0, NULL, OFFLD_NONE) for what is not there, and for a handle that is NULL.
 *
 * Pointers. Any may be NULL, which is an error where something is needed. Others must be what they say: handles of this library that
 * are not freed, strings that end with a zero, buffers of the size that is given, places that can be written to. Strings that are
 * handed over are copied. Paths are bytes; everything else is UTF-8.
 *
 * Threads. The library has no state of its own: any number of threads may call it. One handle may be read by several threads at a time,
 * and be changed or freed by one while no other uses it.
 */


#ifndef OFFLD_H
#define OFFLD_H

/* Made by cbindgen of src/capi: not to be changed by hand. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that is not there. */
#define OFFLD_NONE UINT64_MAX

/**
 * The version of the binary interface that this header describes. It is raised when a function goes or means something else, and
 * the shared library has it in its name then (`liboffld.so.1`). New functions do not raise it.
 */
#define OFFLD_ABI_VERSION 1

/**
 * OpenMP, in `offld_image_kinds` and in what is packed.
 */
#define OFFLD_KIND_OPENMP 1

/**
 * CUDA.
 */
#define OFFLD_KIND_CUDA 2

/**
 * HIP.
 */
#define OFFLD_KIND_HIP 4

/**
 * SYCL.
 */
#define OFFLD_KIND_SYCL 8

/**
 * The host: code of a bundle that is not for a device. Only in `offld_image_kinds`.
 */
#define OFFLD_KIND_HOST 65536

/**
 * A binary for each image, one behind the other: version 1 of the format, which every release of LLVM reads.
 */
#define OFFLD_PACK_SEPARATE 1

/**
 * One binary for all images: version 2 of the format, which LLVM 23 reads.
 */
#define OFFLD_PACK_SHARED 2

/**
 * The producer has given no format.
 */
#define OFFLD_FORMAT_NONE 0

/**
 * An object or shared object of the device.
 */
#define OFFLD_FORMAT_OBJECT 1

/**
 * LLVM bitcode.
 */
#define OFFLD_FORMAT_BITCODE 2

/**
 * A CUDA cubin.
 */
#define OFFLD_FORMAT_CUBIN 3

/**
 * A CUDA fatbinary.
 */
#define OFFLD_FORMAT_FATBINARY 4

/**
 * PTX text.
 */
#define OFFLD_FORMAT_PTX 5

/**
 * SPIR-V.
 */
#define OFFLD_FORMAT_SPIRV 6

/**
 * What came of a call.
 */
enum offld_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It has worked.
     */
    OFFLD_STATUS_OK = 0,
    /**
     * An argument cannot be: NULL where something must be, a size or index out of range, text that is no UTF-8.
     */
    OFFLD_STATUS_ARGUMENT = 1,
    /**
     * The system did not let something be opened, read or written: `offld_error_system` has its number.
     */
    OFFLD_STATUS_IO = 2,
    /**
     * Bytes break their format: `offld_error_offset` may say where.
     */
    OFFLD_STATUS_MALFORMED = 3,
    /**
     * The caller's function ended the call by a value that is not 0.
     */
    OFFLD_STATUS_STOPPED = 4,
    /**
     * Something that is not supported, or that is not there.
     */
    OFFLD_STATUS_OTHER = 5,
    /**
     * A defect of offld. The call has had no effect, and the library can be used further on.
     */
    OFFLD_STATUS_INTERNAL = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum offld_status offld_status;
#else
typedef int32_t offld_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Bytes that the caller has got, with one zero byte behind them that is not counted. Freed by `offld_buffer_free`.
 */
typedef struct offld_buffer offld_buffer;

/**
 * An image of a package. It belongs to the package.
 */
typedef struct offld_entry offld_entry;

/**
 * What went wrong in a call. Freed by `offld_error_free`.
 */
typedef struct offld_error offld_error;

/**
 * A device image. It belongs to its report.
 */
typedef struct offld_image offld_image;

/**
 * What is looked for when something is opened. Made by `offld_options_new`, freed by `offld_options_free`; where NULL is given for
 * it, everything is as it is in a new one. It can be used for any number of calls; while one thread changes it, no other may use it.
 */
typedef struct offld_options offld_options;

/**
 * Images with what they are for, which become an OffloadBinary, or have come out of one. Made by `offld_package_new` or
 * `offld_package_read`, freed by `offld_package_free`. Several threads may read it at the same time; while one changes it, no other
 * may use it.
 */
typedef struct offld_package offld_package;

/**
 * A registration with a runtime. It belongs to its report.
 */
typedef struct offld_registration offld_registration;

/**
 * What was found in a file or a buffer: images, registrations, errors. It is never changed, so that any number of threads may read
 * it at the same time. Everything that is asked of it belongs to it, and is valid until `offld_report_free`.
 */
typedef struct offld_report offld_report;

/**
 * One of the things that enclose an image. It belongs to the report.
 */
typedef struct offld_step offld_step;

/**
 * Text: `size` bytes of UTF-8, and one zero byte behind them that is not counted, so that `data` is a C string as well. `data` is
 * never NULL; text that there is none of has the size 0. It belongs to the handle that it was asked of, and is valid until that is
 * freed. Names from damaged or hostile files may have zero bytes inside; what is no UTF-8 in a file is replaced by U+FFFD.
 */
typedef struct offld_string {
    /**
     * The first byte.
     */
    const char *data;
    /**
     * How many bytes there are, without the zero at the end.
     */
    size_t size;
} offld_string;

/**
 * A function that takes bytes, part after part: `size` bytes at `data`, which are gone when it has returned. `context` is what it
 * was handed over with. It returns 0 to go on; anything else ends the call with `OFFLD_STATUS_STOPPED`. It must return: no
 * `longjmp` and no C++ exception may leave it.
 */
typedef int (*offld_write)(void *context, const uint8_t *data, size_t size);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the binary interface of the library that the program runs with: to be compared with `OFFLD_ABI_VERSION` where the
 * library is loaded by hand.
 */
uint32_t offld_abi_version(void);

/**
 * The version of offld, such as `1.2.3`.
 */
struct offld_string offld_version(void);

/**
 * Which of the statuses the error is.
 */
offld_status offld_error_status(const struct offld_error *error);

/**
 * The whole message: what was done with which file, member and section, and why it failed. Empty for NULL.
 */
struct offld_string offld_error_message(const struct offld_error *error);

/**
 * How far into the bytes the fault is that the message tells; `OFFLD_NONE` where that is not known.
 */
uint64_t offld_error_offset(const struct offld_error *error);

/**
 * The system's number of the error (`errno`) with `OFFLD_STATUS_IO`; 0 where there is none.
 */
int32_t offld_error_system(const struct offld_error *error);

/**
 * Frees an error. NULL is nothing to do.
 */
void offld_error_free(struct offld_error *error);

/**
 * The name of a status, such as `malformed`: a constant. A number that is no status is `unknown`.
 */
struct offld_string offld_status_name(int32_t status);

/**
 * Options as they are if nothing is said: no kernels, hashes and bytes of every image, 64 GiB at the most out of compression.
 */
struct offld_options *offld_options_new(void);

/**
 * Whether the kernels of images that are ELF files are read, too. NULL is nothing to do.
 */
void offld_options_set_kernels(struct offld_options *options, bool kernels);

/**
 * Whether headers alone are read: no hashes, and nothing is unpacked but compressed files, members of archives and the heads of
 * compressed bundles. The images have no bytes then. NULL is nothing to do.
 */
void offld_options_set_headers_only(struct offld_options *options, bool headers_only);

/**
 * How many bytes may come out of what is compressed in a file, at the most; 1000 times the size of the file is a limit, too. NULL
 * is nothing to do.
 */
void offld_options_set_max_unpacked(struct offld_options *options, uint64_t bytes);

/**
 * Frees options. NULL is nothing to do.
 */
void offld_options_free(struct offld_options *options);

/**
 * Looks into the file at `path`: an object, library, program, archive, wheel, bundle or image of any kind. `-` is stdin. Libraries
 * that a program needs and files that a thin archive names are opened, too. The file must not change until the report is freed.
 *
 * What is damaged in the file is told by `offld_report_error`, beside what the rest holds; that the call fails means that the file
 * cannot be opened, or that an argument is NULL.
 */
offld_status offld_open_path(const char *path,
                             const struct offld_options *options,
                             struct offld_report **report,
                             struct offld_error **error);

/**
 * Looks into an open file, whose descriptor stays the caller's and may be closed after the call: all of a regular file, and of a
 * pipe what is still in it. `name` is what messages call it (`descriptor` where that is NULL). No other file is opened for it. The
 * file must not change until the report is freed.
 */
offld_status offld_open_fd(int descriptor,
                           const char *name,
                           const struct offld_options *options,
                           struct offld_report **report,
                           struct offld_error **error);

/**
 * Looks into the `size` bytes at `data` as into a file with these contents. They are copied: the caller may free them after the
 * call. `name` is what messages call them (`memory` where that is NULL). No file is opened for them; what is compressed in them is
 * unpacked into unnamed temporary files, as it is of files.
 */
offld_status offld_open_memory(const uint8_t *data,
                               size_t size,
                               const char *name,
                               const struct offld_options *options,
                               struct offld_report **report,
                               struct offld_error **error);

/**
 * The name that the file or buffer was opened by.
 */
struct offld_string offld_report_name(const struct offld_report *report);

/**
 * The type of the file: `elf-executable`, `archive`, `bitcode`, `bundle`, `unknown`, … (docs/inspect-json.md).
 */
struct offld_string offld_report_type(const struct offld_report *report);

/**
 * How many images there are, those for the host in bundles among them. 0 for NULL.
 */
size_t offld_report_image_count(const struct offld_report *report);

/**
 * An image by its number, in the order of the file; NULL where there are fewer, and for NULL.
 */
const struct offld_image *offld_report_image(const struct offld_report *report, size_t index);

/**
 * How many registrations with runtimes there are. 0 for NULL.
 */
size_t offld_report_registration_count(const struct offld_report *report);

/**
 * A registration by its number; NULL where there are fewer, and for NULL.
 */
const struct offld_registration *offld_report_registration(const struct offld_report *report, size_t index);

/**
 * How many errors were found in the file: 0 where all of it could be read, and for NULL.
 */
size_t offld_report_error_count(const struct offld_report *report);

/**
 * An error in the file, with its place; empty where there are fewer.
 */
struct offld_string offld_report_error(const struct offld_report *report, size_t index);

/**
 * The whole report as JSON, as `offld inspect --json` has it for one file (docs/inspect-json.md): with kernels, tables of entries
 * and who linked the file, which have no functions of their own. The caller frees the buffer.
 */
offld_status offld_report_json(const struct offld_report *report, struct offld_buffer **json, struct offld_error **error);

/**
 * Frees a report and everything that was asked of it. NULL is nothing to do.
 */
void offld_report_free(struct offld_report *report);

/**
 * Its number in the report.
 */
size_t offld_image_index(const struct offld_image *image);

/**
 * The programming models that it is for: `OFFLD_KIND_OPENMP` and the like, a bit for each. 0 if its container does not say.
 */
uint32_t offld_image_kinds(const struct offld_image *image);

/**
 * The triple of its device; empty if unknown.
 */
struct offld_string offld_image_triple(const struct offld_image *image);

/**
 * The processor or target id, such as `gfx90a:xnack+` or `sm_90`; empty for any.
 */
struct offld_string offld_image_target(const struct offld_image *image);

/**
 * Its format by its bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`, `empty`, `unknown`, …
 */
struct offld_string offld_image_format(const struct offld_image *image);

/**
 * The machine of an ELF file; empty for others.
 */
struct offld_string offld_image_machine(const struct offld_image *image);

/**
 * The section that it is in; empty if it is in none.
 */
struct offld_string offld_image_section(const struct offld_image *image);

/**
 * The container that it is in, the innermost of them: `offload-binary`, `bundle`, `fatbinary`, …; empty if it is in none.
 */
struct offld_string offld_image_container(const struct offld_image *image);

/**
 * Its id in a bundle, as stored; empty elsewhere.
 */
struct offld_string offld_image_id(const struct offld_image *image);

/**
 * The format that its OffloadBinary gives it: `object`, `bitcode`, …; empty elsewhere.
 */
struct offld_string offld_image_stored_as(const struct offld_image *image);

/**
 * The SHA-256 of its bytes, in hexadecimal; empty if headers alone were read.
 */
struct offld_string offld_image_sha256(const struct offld_image *image);

/**
 * Its offset in the file on disk or in the buffer; `OFFLD_NONE` if it was decompressed.
 */
uint64_t offld_image_offset(const struct offld_image *image);

/**
 * Its size in bytes.
 */
uint64_t offld_image_size(const struct offld_image *image);

/**
 * The compressed size of what it was decompressed from, which is the image or the whole bundle that it is in; `OFFLD_NONE` if it
 * was not compressed.
 */
uint64_t offld_image_compressed_size(const struct offld_image *image);

/**
 * The flags of its OffloadBinary entry; 0 elsewhere.
 */
uint32_t offld_image_flags(const struct offld_image *image);

/**
 * How many archives it is in, one in the other.
 */
size_t offld_image_member_count(const struct offld_image *image);

/**
 * The name of the member that it is in, of the archive with this number, the outermost first; empty where there are fewer.
 */
struct offld_string offld_image_member(const struct offld_image *image, size_t index);

/**
 * How many things it is in: members, compressed files, sections, variables, containers.
 */
size_t offld_image_step_count(const struct offld_image *image);

/**
 * One of these things by its number, the outermost first; NULL where there are fewer, and for NULL.
 */
const struct offld_step *offld_image_step(const struct offld_image *image, size_t index);

/**
 * How many strings its OffloadBinary entry has.
 */
size_t offld_image_string_count(const struct offld_image *image);

/**
 * The key of one of these strings, in the order of the keys; empty where there are fewer.
 */
struct offld_string offld_image_string_key(const struct offld_image *image, size_t index);

/**
 * Its value; empty where there are fewer.
 */
struct offld_string offld_image_string_value(const struct offld_image *image, size_t index);

/**
 * How many tools that made it have left their names in it.
 */
size_t offld_image_producer_count(const struct offld_image *image);

/**
 * One of these names; empty where there are fewer.
 */
struct offld_string offld_image_producer(const struct offld_image *image, size_t index);

/**
 * How many kernels it has; 0 where they were not asked for (`offld_options_set_kernels`).
 */
size_t offld_image_kernel_count(const struct offld_image *image);

/**
 * The name of a kernel, mangled as in the image; empty where there are fewer. `offld_report_json` has what they need.
 */
struct offld_string offld_image_kernel(const struct offld_image *image, size_t index);

/**
 * The image's bytes where they are, in the memory map of the file or in the copy of the buffer: nothing is copied, and they are
 * valid until the report is freed. `*data` is not NULL even if `*size` is 0. It is an error where headers alone were read.
 */
offld_status offld_image_bytes(const struct offld_image *image, const uint8_t **data, size_t *size, struct offld_error **error);

/**
 * Writes the image's bytes to where the file descriptor stands, which stays the caller's. With few bytes of memory, however large
 * the image is.
 */
offld_status offld_image_write_fd(const struct offld_image *image, int descriptor, struct offld_error **error);

/**
 * Writes the image's bytes to the file at `path`, which appears whole or not at all, and takes the place of one that is there. `-`
 * is stdout.
 */
offld_status offld_image_write_path(const struct offld_image *image, const char *path, struct offld_error **error);

/**
 * Hands the image's bytes to `write`, part after part.
 */
offld_status offld_image_write(const struct offld_image *image, offld_write write, void *context, struct offld_error **error);

/**
 * What it is: `member` of an archive, `compressed` file, `section`, `symbol` (a variable), `container`.
 */
struct offld_string offld_step_kind(const struct offld_step *step);

/**
 * The name of the member, section or variable; of a container its format (`offload-binary`, `bundle`, `fatbinary`, …), of a
 * compressed file what compressed it.
 */
struct offld_string offld_step_name(const struct offld_step *step);

/**
 * Where it starts in the file on disk or in the buffer; `OFFLD_NONE` in something that was decompressed.
 */
uint64_t offld_step_offset(const struct offld_step *step);

/**
 * Its size in bytes as stored, which may be compressed.
 */
uint64_t offld_step_size(const struct offld_step *step);

/**
 * Its decompressed size; `OFFLD_NONE` if it is not compressed, or that is not known.
 */
uint64_t offld_step_plain_size(const struct offld_step *step);

/**
 * How it is compressed: `zstd`, `zlib`, `lz4`, …; empty if it is not.
 */
struct offld_string offld_step_compression(const struct offld_step *step);

/**
 * The version of a container's format; 0 where it has none.
 */
uint32_t offld_step_version(const struct offld_step *step);

/**
 * The runtime: `openmp`, `cuda`, `hip`, `sycl`.
 */
struct offld_string offld_registration_runtime(const struct offld_registration *registration);

/**
 * The function that is called: `__tgt_register_lib`, …
 */
struct offld_string offld_registration_symbol(const struct offld_registration *registration);

/**
 * Where that function is: `here` in the file itself, in a `library` that the program needs, or `elsewhere` if the file is an object
 * that leaves it undefined.
 */
struct offld_string offld_registration_found(const struct offld_registration *registration);

/**
 * How many archives it is in, one in the other.
 */
size_t offld_registration_member_count(const struct offld_registration *registration);

/**
 * The name of the member that it is in, of the archive with this number, the outermost first; empty where there are fewer.
 */
struct offld_string offld_registration_member(const struct offld_registration *registration, size_t index);

/**
 * How many libraries that the program needs define that function, or would if they were found. 0 for what was opened by a
 * descriptor or from memory: no other file is opened then.
 */
size_t offld_registration_library_count(const struct offld_registration *registration);

/**
 * The name of such a library, as the program has it; empty where there are fewer.
 */
struct offld_string offld_registration_library(const struct offld_registration *registration, size_t index);

/**
 * The path at which the dynamic loader would find it now; empty if it would not, and where there are fewer.
 */
struct offld_string offld_registration_library_path(const struct offld_registration *registration, size_t index);

/**
 * A package without images.
 */
struct offld_package *offld_package_new(void);

/**
 * Takes the OffloadBinaries apart that the `size` bytes at `data` are: one or several, of any version, compressed or not. Every
 * image is an entry as it is stored, whatever it is itself (`offld_open_memory` goes on into images that are containers); `flags`
 * and strings are kept, and HIP has today's number in all of them. The bytes are copied. Malformed is what is no OffloadBinary, and
 * a compressed one that is more than 1000 times as large as its file.
 */
offld_status offld_package_read(const uint8_t *data, size_t size, struct offld_package **package, struct offld_error **error);

/**
 * Adds an image: the `size` bytes at `data`, which are copied. Its number, which the functions below take, goes to `*index`, unless
 * `index` is NULL: it is the number of images that were there before. It is for no programming model and has no strings yet, and is
 * an object or bitcode by its bytes.
 */
offld_status offld_package_add(struct offld_package *package,
                               const uint8_t *data,
                               size_t size,
                               size_t *index,
                               struct offld_error **error);

/**
 * Says which programming models an image is for: `OFFLD_KIND_OPENMP` and the like, a bit for each, or 0. For linkers of LLVM 15 to
 * 19, HIP is 3.
 */
offld_status offld_package_set_kinds(struct offld_package *package, size_t index, uint32_t kinds, struct offld_error **error);

/**
 * Says what the image's bytes are: `OFFLD_FORMAT_OBJECT` and the like, or any number of 16 bits.
 */
offld_status offld_package_set_format(struct offld_package *package, size_t index, uint32_t format, struct offld_error **error);

/**
 * Sets the flags of an image's entry; 0 if nothing is said.
 */
offld_status offld_package_set_flags(struct offld_package *package, size_t index, uint32_t flags, struct offld_error **error);

/**
 * Stores a string with an image, in place of one with the same key: `triple` and `arch` are those that linkers go by. Both are
 * UTF-8. What was asked of the entry's strings before is not valid any longer.
 */
offld_status offld_package_set_string(struct offld_package *package,
                                      size_t index,
                                      const char *key,
                                      const char *value,
                                      struct offld_error **error);

/**
 * How many images there are. 0 for NULL.
 */
size_t offld_package_count(const struct offld_package *package);

/**
 * An image by its number, valid until the package is freed; NULL where there are fewer, and for NULL.
 */
const struct offld_entry *offld_package_entry(const struct offld_package *package, size_t index);

/**
 * Writes the images into memory, in the form `OFFLD_PACK_SEPARATE` or `OFFLD_PACK_SHARED`. The caller frees the buffer.
 */
offld_status offld_package_write_memory(const struct offld_package *package,
                                        uint32_t form,
                                        struct offld_buffer **buffer,
                                        struct offld_error **error);

/**
 * Writes the images to the file at `path`, which appears whole or not at all, and takes the place of one that is there. `-` is
 * stdout.
 */
offld_status offld_package_write_path(const struct offld_package *package,
                                      uint32_t form,
                                      const char *path,
                                      struct offld_error **error);

/**
 * Writes the images to where the file descriptor stands, which stays the caller's.
 */
offld_status offld_package_write_fd(const struct offld_package *package, uint32_t form, int descriptor, struct offld_error **error);

/**
 * Hands what is written to `write`, part after part.
 */
offld_status offld_package_write(const struct offld_package *package,
                                 uint32_t form,
                                 offld_write write,
                                 void *context,
                                 struct offld_error **error);

/**
 * Frees a package and everything that was asked of it. NULL is nothing to do.
 */
void offld_package_free(struct offld_package *package);

/**
 * The programming models that it is for, as stored: `OFFLD_KIND_OPENMP` and the like, a bit for each.
 */
uint32_t offld_entry_kinds(const struct offld_entry *entry);

/**
 * What its bytes are, as stored: `OFFLD_FORMAT_OBJECT` and the like, or a number that this version has no name for.
 */
uint32_t offld_entry_format(const struct offld_entry *entry);

/**
 * Its flags, as stored.
 */
uint32_t offld_entry_flags(const struct offld_entry *entry);

/**
 * Its bytes, valid until the package is freed. NULL for NULL.
 */
const uint8_t *offld_entry_data(const struct offld_entry *entry);

/**
 * How many bytes it has. 0 for NULL.
 */
size_t offld_entry_size(const struct offld_entry *entry);

/**
 * How many strings are stored with it.
 */
size_t offld_entry_string_count(const struct offld_entry *entry);

/**
 * The key of one of these strings, in the order stored; empty where there are fewer.
 */
struct offld_string offld_entry_string_key(const struct offld_entry *entry, size_t index);

/**
 * Its value; empty where there are fewer.
 */
struct offld_string offld_entry_string_value(const struct offld_entry *entry, size_t index);

/**
 * The value of the key `triple`; empty where there is none.
 */
struct offld_string offld_entry_triple(const struct offld_entry *entry);

/**
 * The value of the key `arch`; empty where there is none.
 */
struct offld_string offld_entry_arch(const struct offld_entry *entry);

/**
 * The bytes, valid until the buffer is freed. NULL for NULL.
 */
const uint8_t *offld_buffer_data(const struct offld_buffer *buffer);

/**
 * How many bytes there are. 0 for NULL.
 */
size_t offld_buffer_size(const struct offld_buffer *buffer);

/**
 * Frees a buffer. NULL is nothing to do.
 */
void offld_buffer_free(struct offld_buffer *buffer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OFFLD_H */
