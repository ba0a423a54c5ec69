/*
 * copy SERVER FILE PATH: copies a local file into a cell, with 8 operations in progress, and reads
 * it back to compare. copy.rs and copy.py do the same.
 *
 *     cc -o copy copy.c -lrialto
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rialto.h"

#define PART RIALTO_OPERATION_BYTES_MAX /* one operation moves at most 1 MiB */
#define IN_PROGRESS 8

static void fail(const char *what, const char *why) {
    fprintf(stderr, "copy: %s: %s\n", what, why);
    exit(1);
}

/* Ends the program if a function of the library failed. */
static void check(int64_t result, const char *what) {
    if (result < 0)
        fail(what, rialto_error_text());
}

static size_t part_at(uint64_t offset, uint64_t size) {
    return size - offset < PART ? (size_t)(size - offset) : PART;
}

static void read_local(int local, void *data, size_t bytes, uint64_t offset) {
    if (pread(local, data, bytes, (off_t)offset) != (ssize_t)bytes)
        fail("the local file", "it cannot be read, or became shorter");
}

int main(int argc, char **argv) {
    rialto_connection_t *cell;
    rialto_file_t *file;
    rialto_group_t *group;
    rialto_memory_t *memory;
    rialto_buffer_t *free_buffers[IN_PROGRESS];
    rialto_completion_t done[IN_PROGRESS];
    static unsigned char expected[PART];
    struct stat status;
    int writing, at, local;
    uint64_t size;

    if (argc != 4)
        fail("usage", "copy SERVER FILE PATH");
    local = open(argv[2], O_RDONLY);
    if (local < 0 || fstat(local, &status) != 0)
        fail(argv[2], "it cannot be opened");
    size = (uint64_t)status.st_size;

    check(rialto_connect(argv[1], NULL, &cell), argv[1]);
    check(rialto_open(cell, argv[3], RIALTO_CREATE | RIALTO_TRUNCATE, 0644, &file), argv[3]);
    check(rialto_cg_create(&group), "a group");

    /* Each operation has a buffer: the server fetches the bytes there, or places them there. */
    check(rialto_memory_alloc(cell, (size_t)IN_PROGRESS * PART, &memory), "memory");
    for (at = 0; at < IN_PROGRESS; at++)
        check(rialto_buffer(memory, PART, &free_buffers[at]), "a buffer");

    for (writing = 1; writing >= 0; writing--) {
        uint64_t offset = 0;
        size_t free_count = IN_PROGRESS, count, each;

        while (offset < size || free_count < IN_PROGRESS) {
            /* The tag of an operation is the offset of its part. */
            while (offset < size && free_count > 0) {
                rialto_buffer_t *buffer = free_buffers[--free_count];
                size_t bytes = part_at(offset, size);

                if (writing) {
                    read_local(local, rialto_buffer_data(buffer), bytes, offset);
                    check(rialto_async_write(file, group, buffer, bytes, offset, offset), "write");
                } else {
                    check(rialto_async_read(file, group, buffer, bytes, offset, offset), "read");
                }
                offset += bytes;
            }
            check(rialto_cg_wait(cell, group, 1, -1, done, IN_PROGRESS, &count), "wait");
            for (each = 0; each < count; each++) {
                if (done[each].error != 0)
                    fail(writing ? "write" : "read", rialto_error_string(done[each].error));
                if (done[each].bytes != part_at(done[each].tag, size))
                    fail(argv[3], "the file became shorter meanwhile");
                if (!writing) {
                    size_t bytes = (size_t)done[each].bytes;

                    read_local(local, expected, bytes, done[each].tag);
                    if (memcmp(expected, rialto_buffer_data(done[each].buffer), bytes) != 0)
                        fail(argv[3], "they differ");
                }
                free_buffers[free_count++] = done[each].buffer;
            }
        }
        /* Now the bytes survive the server's host, too. */
        if (writing)
            check(rialto_commit(file), "commit");
    }
    printf("%llu bytes, and the cell has the same\n", (unsigned long long)size);

    for (at = 0; at < IN_PROGRESS; at++)
        check(rialto_buffer_release(free_buffers[at]), "a buffer");
    check(rialto_memory_free(memory), "memory");
    check(rialto_cg_destroy(group), "a group");
    check(rialto_close(file), argv[3]);
    check(rialto_disconnect(cell), argv[1]);
    close(local);
    return 0;
}
