/*
 * rialto.h: files of a cell without a mount, asynchronous, in memory of the program's own.
 *
 * Model. A program connects to a cell, opens files by their paths in the cell, and begins
 * operations. Each operation has a buffer, and completes into a completion group under a tag that
 * the program chose. A file has no position: each operation names its offset.
 *
 * Memory. rialto_memory_alloc makes memory that servers can access, and rialto_buffer cuts buffers
 * from it. On the server's own host both sides map it, so an operation needs no system call while
 * there is work. From the begin of an operation until its completion is taken the buffer belongs to
 * the operation: the program neither reads nor writes its bytes. Functions that return when all is
 * done (rialto_read, rialto_write, rialto_append) take any memory, and copy once more.
 *
 * Results. A function that returns int returns 0, or a negative number of enum rialto_error; one
 * that returns int64_t a number of its own that is not negative, or the negative number of an
 * error. rialto_error_text has the text of the thread's latest failure. A function that fails
 * leaves the places for its results as they were, unless it says otherwise.
 *
 * Handles. A pointer to a connection, memory, buffer, file or group is never followed: it is a
 * number that is given once. NULL, a handle that was closed, closed twice, or is of another kind
 * gives RIALTO_ENULL or RIALTO_EHANDLE. Other pointers are followed: the library finds out that one
 * is NULL, and cannot find out that it leads to too little memory, to a text without its zero, or
 * to memory that was freed. It cannot find out either that the program uses the bytes of a buffer
 * that an operation has, or of one that was released.
 *
 * Threads. All functions may be called by several threads at once, also with the same handles. One
 * thread at a time takes completions of a group; another one gets RIALTO_EINUSE. A handle may be
 * closed while another thread uses it: the other call goes on to its end.
 *
 * Fork. The library has threads of its own. In a child that was forked after rialto_connect each
 * function returns RIALTO_EFORKED. A child that executes another program, or that was forked before
 * the first rialto_connect, is not concerned. Until a child ends or executes a program it keeps the
 * parent's sockets: a server may notice the death of the parent later.
 *
 * Unloading. The library stays in the process, also after dlclose.
 *
 * Signals. No function may be called by a signal handler. A signal interrupts no function.
 *
 * Paths begin in the root volume; a leading '/' changes nothing. They are UTF-8. Symbolic links and
 * mount points are followed; links that begin with '/' and mount points of other cells give
 * RIALTO_EELSEWHERE.
 *
 * Caller. Operations are those of the process's effective user and group at rialto_connect.
 */
#ifndef RIALTO_H
#define RIALTO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: programs that were built with it need a library for which
 * rialto_abi() returns it. */
#define RIALTO_ABI 1

/* The most bytes that one asynchronous operation moves. */
#define RIALTO_OPERATION_BYTES_MAX 1048576

typedef struct rialto_connection_handle rialto_connection_t;
typedef struct rialto_memory_handle rialto_memory_t;
typedef struct rialto_buffer_handle rialto_buffer_t;
typedef struct rialto_file_handle rialto_file_t;
typedef struct rialto_group_handle rialto_group_t;

/* Numbers of errors. Those above -1000 are refusals by a server. */
enum rialto_error {
    RIALTO_OK = 0,
    RIALTO_ENOTFOUND = -1, /* no such entry */
    RIALTO_EEXISTS = -2, /* the entry exists */
    RIALTO_ENOTDIRECTORY = -3, /* not a directory */
    RIALTO_EISDIRECTORY = -4, /* is a directory */
    RIALTO_ENOTEMPTY = -5, /* directory is not empty */
    RIALTO_EACCESSDENIED = -6, /* access denied */
    RIALTO_ENOTPERMITTED = -7, /* not permitted */
    RIALTO_ENOSPACE = -8, /* partition is full */
    RIALTO_EQUOTAEXCEEDED = -9, /* quota of the volume is used up */
    RIALTO_ETOOBIG = -10, /* file would be too large */
    RIALTO_ETOOMANYLINKS = -11, /* too many links */
    RIALTO_EINVALID = -12, /* invalid arguments */
    RIALTO_ESTALE = -13, /* no such file any more */
    RIALTO_EREADONLY = -14, /* volume is read-only */
    RIALTO_ECROSSVOLUME = -15, /* crosses volumes */
    RIALTO_ENOXATTR = -16, /* no such attribute */
    RIALTO_EXATTRTOOBIG = -17, /* attribute is too large */
    RIALTO_ELOCKED = -18, /* locked by another */
    RIALTO_EDEADLOCK = -19, /* deadlock */
    RIALTO_ECANCELLED = -20, /* cancelled */
    RIALTO_EDAMAGED = -21, /* stored data is damaged */
    RIALTO_EMEDIUM = -22, /* server's medium failed */
    RIALTO_EUNSUPPORTED = -23, /* not supported */
    RIALTO_EBUSY = -24, /* busy */
    RIALTO_ECHAINABORTED = -25, /* chain aborted */
    RIALTO_EGROUPSNEEDED = -26, /* supplementary groups needed */
    RIALTO_EEXPIRED = -27, /* session expired */
    RIALTO_ENOVOLUME = -28, /* no such volume */
    RIALTO_ENOTHINGTHERE = -29, /* no data or hole there */
    RIALTO_ENOCREDENTIAL = -30, /* no such credential */
    RIALTO_ENAMETOOLONG = -31, /* name is too long */
    RIALTO_ENOTDELEGATED = -32, /* not delegated to this session */
    RIALTO_EOFFLINE = -33, /* volume is offline */
    RIALTO_ECONFLICT = -34, /* the record changed meanwhile: read it again */
    RIALTO_ECELLAWAY = -35, /* the cell's database cannot be reached */
    RIALTO_ENOPRINCIPAL = -36, /* no such user or group */
    RIALTO_ETOKENEXPIRED = -37, /* token has expired */
    RIALTO_EFENCED = -38, /* fenced off by an administrator */
    RIALTO_ETOKENREFUSED = -39, /* token is not accepted */
    RIALTO_ESHARECONFLICT = -40, /* another program has the file open, and denies this */
    RIALTO_EKEYCONFLICT = -41, /* the file is open with another key, or without one */
    RIALTO_ELOCKBROKEN = -42, /* a persistent lock ended abnormally: the file needs a repair */
    RIALTO_ENULL = -1001, /* a pointer is NULL that must not be */
    RIALTO_EHANDLE = -1002, /* no such handle: it was closed, or never made */
    RIALTO_EINUSE = -1003, /* an operation or another thread uses it now */
    RIALTO_EARGUMENT = -1004, /* an argument is outside of its range */
    RIALTO_ELENGTH = -1005, /* an operation moves 1 to 1,048,576 bytes */
    RIALTO_EPATH = -1006, /* no file can have this path */
    RIALTO_ELOOP = -1007, /* too many symbolic links */
    RIALTO_EELSEWHERE = -1008, /* the path leads out of the cell */
    RIALTO_EUNREACHABLE = -1009, /* no server, or it takes no client */
    /* the session ended before the answer; whether a change was applied is unknown */
    RIALTO_ELOST = -1010,
    RIALTO_EPROTOCOL = -1011, /* the server answered something else */
    RIALTO_EMEMORY = -1012, /* no memory or descriptors are left */
    RIALTO_ETIMEDOUT = -1013, /* too few operations ended in time */
    /* this process forked after it had connected, and the library is not in the child */
    RIALTO_EFORKED = -1014,
    RIALTO_EINTERNAL = -1015, /* a fault of the library; please report it */
    /* the open of the file was lost, and others may have used it since; close it */
    RIALTO_ELOSTOPEN = -1016,
    /* a lock of the file was lost, and others may have had it since; close the file */
    RIALTO_ELOSTLOCK = -1017
};

/* Kinds of files. */
enum rialto_kind {
    RIALTO_KIND_FILE = 1,
    RIALTO_KIND_DIRECTORY = 2,
    RIALTO_KIND_SYMLINK = 3,
    RIALTO_KIND_FIFO = 4,
    RIALTO_KIND_SOCKET = 5,
    RIALTO_KIND_CHAR_DEVICE = 6,
    RIALTO_KIND_BLOCK_DEVICE = 7,
    RIALTO_KIND_MOUNT_POINT = 8 /* the name of another volume's root; rialto_list alone shows it */
};

/* Flags of rialto_open and rialto_open_how. */
enum rialto_open_flags {
    RIALTO_CREATE = 1,    /* make the file if it does not exist */
    RIALTO_EXCLUSIVE = 2, /* with RIALTO_CREATE: fail with RIALTO_EEXISTS if it exists */
    RIALTO_TRUNCATE = 4   /* cut it to 0 bytes */
};

/* Uses of a file's data. */
enum rialto_use {
    RIALTO_USE_NOTHING = 0,
    RIALTO_USE_READ = 1,
    RIALTO_USE_WRITE = 2,
    RIALTO_USE_BOTH = 3
};

/* How rialto_open_how opens a file. Set all of it, to 0 at first. */
typedef struct rialto_how {
    uint32_t access;     /* the program's uses of the data, of enum rialto_use; at least one */
    uint32_t deny;       /* the uses that no other has meanwhile */
    uint32_t flags;      /* of enum rialto_open_flags */
    uint32_t mode;       /* permission bits of a file that is made */
    const uint8_t *key;  /* 16 bytes that all must have who have the file open; or NULL */
    uint64_t reserved[4]; /* 0 */
} rialto_how_t;

/* A time since 1970-01-01 00:00 UTC. */
typedef struct rialto_time {
    int64_t seconds;      /* rounded down */
    uint32_t nanoseconds; /* below 1,000,000,000 */
    uint32_t reserved;    /* 0 */
} rialto_time_t;

/* The status of a file. */
typedef struct rialto_status {
    uint64_t volume;  /* volume, vnode and unique are the file's identity, for ever */
    uint64_t vnode;
    uint64_t unique;
    uint32_t kind;    /* of enum rialto_kind */
    uint32_t mode;    /* permission, set-id and sticky bits, without the kind */
    uint32_t uid;     /* the owner */
    uint32_t gid;     /* the group */
    uint32_t links;   /* names of the file */
    uint32_t reserved; /* 0 */
    uint64_t size;    /* bytes from 0 to the end of the file */
    uint64_t used;    /* bytes of the medium, without holes */
    uint64_t version; /* advances with each change of the data or of a directory's entries */
    rialto_time_t accessed;
    rialto_time_t modified;
    rialto_time_t changed;
    rialto_time_t created;
} rialto_status_t;

/* A name in a directory. */
typedef struct rialto_entry {
    const char *name;       /* ends with a zero; any bytes but '/' and zero */
    size_t name_bytes;      /* bytes of the name, without its zero */
    uint32_t kind;          /* of enum rialto_kind */
    uint32_t has_status;    /* 1; or 0: the caller may not see the status, which has zeros */
    rialto_status_t status;
} rialto_entry_t;

/* The end of an operation. */
typedef struct rialto_completion {
    uint64_t tag;            /* the operation's */
    rialto_buffer_t *buffer; /* the operation's; the program has it back */
    int32_t error;           /* 0, or of enum rialto_error */
    uint32_t reserved;       /* 0 */
    uint64_t bytes;          /* bytes that were moved; fewer than asked for only at the end */
    uint64_t offset;         /* where in the file; of an append the server chose it */
    uint64_t size;           /* the file's length after the operation */
    uint64_t version;        /* the version of the file's data that was read or made */
} rialto_completion_t;

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The version of the library's interface; compare it with RIALTO_ABI. */
int rialto_abi(void);

/* The text of the latest failure in this thread, or "". It is the library's, and stays until the
 * thread's next failure. */
const char *rialto_error_text(void);

/* The text of a number of enum rialto_error, such as a completion's. It stays for ever. */
const char *rialto_error_string(int error);

/* The name of a number of enum rialto_error, such as "RIALTO_ENOTFOUND"; "" if there is none. It
 * stays for ever. */
const char *rialto_error_name(int error);

/* The value of errno that a mount would give for a number of enum rialto_error, or the nearest one;
 * 0 for RIALTO_OK. The library itself neither reads nor promises errno. */
int rialto_errno(int error);

/* ---- Connections ----------------------------------------------------------------------------- */

/* Connects to a cell, and waits for the answer; for a server that is not there yet, 10 seconds at
 * most. `server` is one of the cell's servers: "unix:PATH" or "tcp:HOST:PORT"; other servers are
 * found by themselves. `root` is the name of the volume in which paths begin; NULL: "root.cell".
 * The connection is the program's, to be ended with rialto_disconnect.
 * RIALTO_EARGUMENT: this is no address. RIALTO_EUNREACHABLE: no server answers there. */
int rialto_connect(const char *server, const char *root, rialto_connection_t **connection);

/* Ends a connection's handle. Files and memory of it stay good, and the sessions with servers end
 * when the last of them is closed; then this waits for their end.
 * RIALTO_EINUSE: the default group has operations whose completions nothing took. */
int rialto_disconnect(rialto_connection_t *connection);

/* Returns 1 if memory that both sides share carries the operations on the first server now, 0 if
 * they go over a socket. */
int rialto_has_lane(rialto_connection_t *connection);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Makes memory of at least `bytes` bytes, which servers can access. Its pages are taken at once. A
 * server accepts 64 of them, and the bytes of others go over the socket: make few and large ones.
 * RIALTO_EMEMORY: the system has none left. */
int rialto_memory_alloc(rialto_connection_t *connection, size_t bytes, rialto_memory_t **memory);

/* Ends a memory's handle. The memory goes with the last of its buffers; if an operation has used
 * it, when the connection's sessions end, too: make memory once, and cut buffers from it anew. */
int rialto_memory_free(rialto_memory_t *memory);

/* Cuts a buffer of `bytes` bytes, with any content, from a free part of the memory. Buffers begin
 * at multiples of 64 bytes. The buffer is the program's, to be released.
 * RIALTO_EMEMORY: no free part is so long. */
int rialto_buffer(rialto_memory_t *memory, size_t bytes, rialto_buffer_t **buffer);

/* The buffer's bytes, at the same address until the buffer is released; NULL: there is no such
 * buffer. */
void *rialto_buffer_data(rialto_buffer_t *buffer);

/* The length of the buffer in bytes. */
int64_t rialto_buffer_bytes(rialto_buffer_t *buffer);

/* Gives the buffer's bytes back to its memory.
 * RIALTO_EINUSE: an operation has it. */
int rialto_buffer_release(rialto_buffer_t *buffer);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Opens the file with this path, and waits for the answer. `flags` are of enum rialto_open_flags.
 * `mode` has the permission bits of a file that is made, as they are (no umask); otherwise it is
 * not looked at, but must not be more than 07777. The file is the program's, to be closed. It is
 * not opened at the server (rialto_open_how does that): a file that loses its last name is gone,
 * and gives RIALTO_ESTALE. */
int rialto_open(rialto_connection_t *connection, const char *path, uint32_t flags, uint32_t mode,
                rialto_file_t **file);

/* Opens the file with this path at its server. Until it is closed the server holds all others to
 * `how`: programs, mounts, and clients of AFS. The open goes on over restarts of the server and
 * moves of the volume, and over lost connections while the program is back within its lease (15
 * seconds); if it is lost, operations fail with RIALTO_ELOSTOPEN until the file is closed. A file
 * is made before it is opened, so another program may open it first.
 * RIALTO_ESHARECONFLICT, RIALTO_EKEYCONFLICT: opens of others do not allow it. RIALTO_EBUSY: a
 * kernel writes the file; try again. */
int rialto_open_how(rialto_connection_t *connection, const char *path, const rialto_how_t *how,
                    rialto_file_t **file);

/* Gives up uses or denials of a file that was opened with rialto_open_how.
 * RIALTO_EINVALID: that is more than it has, or no access. */
int rialto_downgrade(rialto_file_t *file, uint32_t access, uint32_t deny);

/* Closes a file: its open at the server and its locks end. Operations that were begun go on. The
 * handle is closed in any case, unless it is none. A file that has an open or locks waits for the
 * server here.
 * RIALTO_ELOSTOPEN, RIALTO_ELOSTLOCK: they had been lost before. */
int rialto_close(rialto_file_t *file);

/* The status of the file now. */
int rialto_fstat(rialto_file_t *file, rialto_status_t *status);

/* Cuts the file to `size` bytes, or makes it longer with zeros. */
int rialto_truncate(rialto_file_t *file, uint64_t size);

/* Makes everything stable that was written, by operations that are complete: it survives the
 * server's host. Without it writes survive the server's process. */
int rialto_commit(rialto_file_t *file);

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Locks `length` bytes from `start` on (0: all, to the largest offset), for others to respect: for
 * reading with others, or for this owner alone if `exclusive` is not 0. `owner` is any number; it
 * names an owner of this file's handle alone. The locks are those of fcntl (F_SETLK) in mounts and
 * those of all programs: an owner's later lock replaces its earlier ones on the bytes that they
 * share. Waits for locks that are in the way, for `timeout_ms` milliseconds at most (0: not at all;
 * negative: without end). Locks end with rialto_unlock, with the file's handle, and with the
 * program. As opens do they go on over restarts and moves; if one is lost, operations on the file
 * fail with RIALTO_ELOSTLOCK until it is closed. One thread at a time locks and unlocks for an
 * owner.
 * RIALTO_ELOCKED: another owner's lock was in the way all the time. RIALTO_EDEADLOCK: it waits for
 * this owner. */
int rialto_lock(rialto_file_t *file, uint64_t owner, uint64_t start, uint64_t length,
                int exclusive, int64_t timeout_ms);

/* Unlocks bytes of the owner; those that are not locked stay so.
 * RIALTO_ELOSTLOCK, RIALTO_ELOSTOPEN: they had been lost before. */
int rialto_unlock(rialto_file_t *file, uint64_t owner, uint64_t start, uint64_t length);

/* Returns 1 if a lock of another owner is in the way of this one now, otherwise 0. */
int rialto_test_lock(rialto_file_t *file, uint64_t owner, uint64_t start, uint64_t length,
                     int exclusive);

/* ---- Operations ------------------------------------------------------------------------------ */

/* Each of these begins an operation that moves the first `bytes` bytes of the buffer (1 to
 * RIALTO_OPERATION_BYTES_MAX, and not more than the buffer has), and returns. It completes into
 * `group`, or, if that is NULL, into the default group of the file's connection, with this tag.
 * Operations end in any order. If the function fails no operation was begun, and the program has
 * the buffer still.
 * It waits only while more operations are in progress than the server allows.
 * RIALTO_EINUSE: another operation has the buffer. RIALTO_ELENGTH: the length is not in the range.
 */

/* Reads from `offset` on. The completion has fewer bytes than asked for at the end of the file
 * alone. Offsets are bytes. */
int rialto_async_read(rialto_file_t *file, rialto_group_t *group, rialto_buffer_t *buffer,
                      size_t bytes, uint64_t offset, uint64_t tag);

/* Writes at `offset`. */
int rialto_async_write(rialto_file_t *file, rialto_group_t *group, rialto_buffer_t *buffer,
                       size_t bytes, uint64_t offset, uint64_t tag);

/* Writes at the end of the file, once, however often the server is asked; the completion has the
 * offset. */
int rialto_async_append(rialto_file_t *file, rialto_group_t *group, rialto_buffer_t *buffer,
                        size_t bytes, uint64_t tag);

/* Reads up to `bytes` bytes from `offset` on into any memory, and returns how many: fewer only at
 * the end of the file. Long reads are several operations, so others' writes may come between. */
int64_t rialto_read(rialto_file_t *file, void *data, size_t bytes, uint64_t offset);

/* Writes all `bytes` bytes at `offset`, and returns how many. If it fails any part of them may be
 * written. */
int64_t rialto_write(rialto_file_t *file, const void *data, size_t bytes, uint64_t offset);

/* Writes all `bytes` bytes at the end of the file, and returns how many; `*offset`, unless `offset`
 * is NULL, is where the first one is, and stays as it was if `bytes` is 0. Up to
 * RIALTO_OPERATION_BYTES_MAX bytes stay together; appends of others may come between longer parts.
 * If it fails any part of them may be written. */
int64_t rialto_append(rialto_file_t *file, const void *data, size_t bytes, uint64_t *offset);

/* ---- Completion groups ----------------------------------------------------------------------- */

/* Makes an empty group. It may have operations of several connections. */
int rialto_cg_create(rialto_group_t **group);

/* Ends a group.
 * RIALTO_EINUSE: it has operations whose completions nothing took, or a thread waits for it. */
int rialto_cg_destroy(rialto_group_t *group);

/* Takes completions of the group, or, if `group` is NULL, of the default group of `connection`
 * (which otherwise may be NULL): waits until there are `least`, but not more than `most` or than
 * the group has operations; for `timeout_ms` milliseconds at most (0: not at all; negative: without
 * end). Writes those that are there, `most` at most, the earliest first, into `completions`, and
 * their number into `*count`, which is 0 if the function fails for another reason.
 * RIALTO_ETIMEDOUT: there were fewer than `least` in time; `*count` has how many.
 * RIALTO_EINUSE: another thread waits for the group. */
int rialto_cg_wait(rialto_connection_t *connection, rialto_group_t *group, size_t least,
                   int64_t timeout_ms, rialto_completion_t *completions, size_t most,
                   size_t *count);

/* As rialto_cg_wait for 0 completions: takes those that are there, and makes no system call on the
 * server's host. */
int rialto_cg_poll(rialto_connection_t *connection, rialto_group_t *group,
                   rialto_completion_t *completions, size_t most, size_t *count);

/* How many operations the group has: those in progress, and those whose completions nothing took.
 */
int64_t rialto_cg_count(rialto_connection_t *connection, rialto_group_t *group);

/* ---- Names ----------------------------------------------------------------------------------- */

/* The status of the file with this path; of the one that a symbolic link at its end names, if
 * `follow` is not 0. */
int rialto_stat(rialto_connection_t *connection, const char *path, int follow,
                rialto_status_t *status);

/* Calls `callback` for each entry of the directory with this path, without "." and "..", in the
 * order of the server, in this thread. Entry and name are the library's, and are there until the
 * callback returns; it may call functions of the library. If it returns another number than 0 the
 * listing ends, and this function returns that number, which should be positive. It must return in
 * the ordinary way: no longjmp, no exception of C++. Entries are those of the moment of the call.
 */
int rialto_list(rialto_connection_t *connection, const char *path,
                int (*callback)(void *context, const rialto_entry_t *entry), void *context);

/* Makes a directory with these permission bits, as they are (no umask). */
int rialto_mkdir(rialto_connection_t *connection, const char *path, uint32_t mode);

/* Removes a name of a file, which is no directory and no mount point. A symbolic link at the end of
 * the path is itself meant. */
int rialto_unlink(rialto_connection_t *connection, const char *path);

/* Removes an empty directory. */
int rialto_rmdir(rialto_connection_t *connection, const char *path);

/* Gives a file or directory another name in the same volume. A file or empty directory that has the
 * name goes, if `replace` is not 0.
 * RIALTO_EEXISTS: it has, and `replace` is 0. RIALTO_ECROSSVOLUME: the new name would be in another
 * volume. */
int rialto_rename(rialto_connection_t *connection, const char *from, const char *to, int replace);

#ifdef __cplusplus
}
#endif

#endif
