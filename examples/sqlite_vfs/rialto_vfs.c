/*
 * rialto_vfs.c: SQLite's databases in a cell, without a mount. An extension that SQLite loads; it
 * registers the file system "rialto", which RIALTO_SERVER in the environment leads to:
 *
 *     .load ./rialto_vfs
 *     .open file:dir/table.db?vfs=rialto
 *
 * Model. A database and its journal are files of the cell, and names are paths there. A level of
 * SQLite's locks is a set of byte ranges that are locked, the same as in SQLite's file system for
 * Unix; so programs with this extension, and programs that use the same database in a mount, keep
 * out of each other's way. Each open file is an owner of its own.
 *
 *     SHARED     some byte of the shared range, for reading; taken under PENDING, for reading
 *     RESERVED   and the reserved byte, alone
 *     PENDING    and the pending byte, alone: no further reader begins
 *     EXCLUSIVE  and the whole shared range, alone
 *
 * A program that is killed has its locks until the server notices that, which takes moments on the
 * server's host, and a lease elsewhere. Its journal stays, and the next program rolls it back. A
 * lock that is lost (RIALTO_ELOSTLOCK) fails each use of the file until the database is closed.
 *
 * Journal modes DELETE, TRUNCATE and PERSIST. There is no memory that clients of a cell share, so
 * SQLite refuses WAL unless "pragma locking_mode=exclusive" came first.
 */
#include <pthread.h>
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>

#include "rialto.h"

SQLITE_EXTENSION_INIT1

/* Where os_unix.c of SQLite has them. */
#define PENDING_BYTE 0x40000000
#define RESERVED_BYTE (PENDING_BYTE + 1)
#define SHARED_FIRST (PENDING_BYTE + 2)
#define SHARED_BYTES 510

#define OWNER 1
#define PATH_BYTES 4096

/* A database or a journal. */
typedef struct {
    sqlite3_file base;
    rialto_file_t *file;
    int level;      /* of SQLite's locks */
    char *unstable; /* its path, until the file's name is stable; or NULL */
} cell_file;

/* The file system for temporary files, and for all that is not about files. */
static sqlite3_vfs *parent;

static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;
static rialto_connection_t *cell;

/* The connection, made at the first use; NULL: no server answers. */
static rialto_connection_t *connected(void) {
    const char *server = getenv("RIALTO_SERVER");
    rialto_connection_t *found;

    pthread_mutex_lock(&connecting);
    if (cell == NULL && server != NULL && rialto_connect(server, NULL, &cell) != RIALTO_OK) {
        sqlite3_log(SQLITE_CANTOPEN, "rialto: %s: %s", server, rialto_error_text());
        cell = NULL;
    }
    found = cell;
    pthread_mutex_unlock(&connecting);
    return found;
}

/* The result for SQLite of a call that failed. */
static int failed(int64_t error, int otherwise) {
    sqlite3_log(otherwise, "rialto: %s", rialto_error_text());
    switch (error) {
    case RIALTO_ENOSPACE:
    case RIALTO_EQUOTAEXCEEDED:
        return SQLITE_FULL;
    case RIALTO_EACCESSDENIED:
    case RIALTO_ENOTPERMITTED:
        return SQLITE_PERM;
    case RIALTO_EREADONLY:
        return SQLITE_READONLY;
    case RIALTO_ESHARECONFLICT:
    case RIALTO_EKEYCONFLICT:
        return SQLITE_BUSY;
    default:
        return otherwise;
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Makes the names in the directory of `path` stable. */
static int commit_names(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = sqlite3_mprintf("%.*s", slash == NULL ? 0 : (int)(slash - path), path);
    rialto_file_t *file;
    int result;

    if (dir == NULL) return RIALTO_EMEMORY;
    result = rialto_open(cell, dir, 0, 0, &file);
    sqlite3_free(dir);
    if (result != RIALTO_OK) return result;
    result = rialto_commit(file);
    rialto_close(file);
    return result;
}

static int vfs_close(sqlite3_file *base) {
    cell_file *its = (cell_file *)base;
    int result = rialto_close(its->file);

    sqlite3_free(its->unstable);
    its->base.pMethods = NULL;
    return result == RIALTO_OK ? SQLITE_OK : failed(result, SQLITE_IOERR_CLOSE);
}

static int vfs_read(sqlite3_file *base, void *to, int bytes, sqlite3_int64 offset) {
    int64_t moved = rialto_read(((cell_file *)base)->file, to, (size_t)bytes, (uint64_t)offset);

    if (moved < 0) return failed(moved, SQLITE_IOERR_READ);
    if (moved == bytes) return SQLITE_OK;
    memset((char *)to + moved, 0, (size_t)(bytes - moved));
    return SQLITE_IOERR_SHORT_READ;
}

static int vfs_write(sqlite3_file *base, const void *from, int bytes, sqlite3_int64 offset) {
    int64_t moved = rialto_write(((cell_file *)base)->file, from, (size_t)bytes, (uint64_t)offset);

    return moved < 0 ? failed(moved, SQLITE_IOERR_WRITE) : SQLITE_OK;
}

static int vfs_truncate(sqlite3_file *base, sqlite3_int64 size) {
    int result = rialto_truncate(((cell_file *)base)->file, (uint64_t)size);

    return result == RIALTO_OK ? SQLITE_OK : failed(result, SQLITE_IOERR_TRUNCATE);
}

static int vfs_sync(sqlite3_file *base, int flags) {
    cell_file *its = (cell_file *)base;
    int result = rialto_commit(its->file);

    (void)flags;
    if (result == RIALTO_OK && its->unstable != NULL) {
        result = commit_names(its->unstable);
        if (result == RIALTO_OK) {
            sqlite3_free(its->unstable);
            its->unstable = NULL;
        }
    }
    return result == RIALTO_OK ? SQLITE_OK : failed(result, SQLITE_IOERR_FSYNC);
}

static int vfs_size(sqlite3_file *base, sqlite3_int64 *size) {
    rialto_status_t status;
    int result = rialto_fstat(((cell_file *)base)->file, &status);

    if (result != RIALTO_OK) return failed(result, SQLITE_IOERR_FSTAT);
    *size = (sqlite3_int64)status.size;
    return SQLITE_OK;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static int lock_bytes(cell_file *its, uint64_t start, uint64_t length, int exclusive) {
    int result = rialto_lock(its->file, OWNER, start, length, exclusive, 0);

    if (result == RIALTO_OK) return SQLITE_OK;
    /* SQLite asks again, after a pause. */
    if (result == RIALTO_ELOCKED) return SQLITE_BUSY;
    return failed(result, SQLITE_IOERR_LOCK);
}

static int unlock_bytes(cell_file *its, uint64_t start, uint64_t length) {
    int result = rialto_unlock(its->file, OWNER, start, length);

    return result == RIALTO_OK ? SQLITE_OK : failed(result, SQLITE_IOERR_UNLOCK);
}

static int lock_shared(cell_file *its) {
    int result = lock_bytes(its, PENDING_BYTE, 1, 0), unlocked;

    if (result != SQLITE_OK) return result;
    result = lock_bytes(its, SHARED_FIRST, SHARED_BYTES, 0);
    unlocked = unlock_bytes(its, PENDING_BYTE, 1);
    if (result == SQLITE_OK) its->level = SQLITE_LOCK_SHARED;
    return result == SQLITE_OK ? unlocked : result;
}

static int vfs_lock(sqlite3_file *base, int level) {
    cell_file *its = (cell_file *)base;
    int result;

    if (its->level >= level) return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED) return lock_shared(its);
    if (level == SQLITE_LOCK_RESERVED) {
        result = lock_bytes(its, RESERVED_BYTE, 1, 1);
    } else {
        if (its->level < SQLITE_LOCK_PENDING) {
            result = lock_bytes(its, PENDING_BYTE, 1, 1);
            if (result != SQLITE_OK) return result;
            its->level = SQLITE_LOCK_PENDING;
        }
        result = lock_bytes(its, SHARED_FIRST, SHARED_BYTES, 1);
    }
    if (result == SQLITE_OK) its->level = level;
    return result;
}

static int vfs_unlock(sqlite3_file *base, int level) {
    cell_file *its = (cell_file *)base;
    int result = SQLITE_OK;

    if (its->level <= level) return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED) {
        /* Never without it in between: another writer would begin. */
        if (its->level == SQLITE_LOCK_EXCLUSIVE) {
            result = lock_bytes(its, SHARED_FIRST, SHARED_BYTES, 0);
            if (result != SQLITE_OK) return SQLITE_IOERR_RDLOCK;
        }
        result = unlock_bytes(its, PENDING_BYTE, 2);
    } else {
        result = unlock_bytes(its, PENDING_BYTE, 2 + SHARED_BYTES);
    }
    its->level = level;
    return result;
}

static int vfs_check_reserved(sqlite3_file *base, int *is_reserved) {
    cell_file *its = (cell_file *)base;
    int found = its->level >= SQLITE_LOCK_RESERVED;

    if (!found) found = rialto_test_lock(its->file, OWNER, RESERVED_BYTE, 1, 1);
    if (found < 0) return failed(found, SQLITE_IOERR_CHECKRESERVEDLOCK);
    *is_reserved = found;
    return SQLITE_OK;
}

static int vfs_control(sqlite3_file *base, int what, void *value) {
    if (what == SQLITE_FCNTL_LOCKSTATE) {
        *(int *)value = ((cell_file *)base)->level;
        return SQLITE_OK;
    }
    return SQLITE_NOTFOUND;
}

static int vfs_sector(sqlite3_file *base) {
    (void)base;
    return 4096;
}

static int vfs_promises(sqlite3_file *base) {
    (void)base;
    return 0;
}

/* Version 1: no shared memory, no mapping. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = vfs_close,
    .xRead = vfs_read,
    .xWrite = vfs_write,
    .xTruncate = vfs_truncate,
    .xSync = vfs_sync,
    .xFileSize = vfs_size,
    .xLock = vfs_lock,
    .xUnlock = vfs_unlock,
    .xCheckReservedLock = vfs_check_reserved,
    .xFileControl = vfs_control,
    .xSectorSize = vfs_sector,
    .xDeviceCharacteristics = vfs_promises,
};

/* ---- Names ----------------------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags,
                    int *out_flags) {
    cell_file *its = (cell_file *)base;
    uint32_t how = 0;
    int result;

    (void)vfs;
    if (name == NULL) return parent->xOpen(parent, name, base, flags, out_flags);
    memset(its, 0, sizeof *its);
    if (connected() == NULL) return SQLITE_CANTOPEN;
    if (flags & SQLITE_OPEN_CREATE) {
        how = RIALTO_CREATE | (flags & SQLITE_OPEN_EXCLUSIVE ? RIALTO_EXCLUSIVE : 0);
        its->unstable = sqlite3_mprintf("%s", name);
        if (its->unstable == NULL) return SQLITE_NOMEM;
    }
    result = rialto_open(cell, name, how, 0644, &its->file);
    if (result != RIALTO_OK) {
        sqlite3_free(its->unstable);
        return failed(result, SQLITE_CANTOPEN);
    }
    its->base.pMethods = &methods;
    if (out_flags != NULL) *out_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int stable) {
    int result;

    (void)vfs;
    if (connected() == NULL) return SQLITE_IOERR_DELETE;
    result = rialto_unlink(cell, name);
    if (result == RIALTO_ENOTFOUND) return SQLITE_IOERR_DELETE_NOENT;
    if (result == RIALTO_OK && stable) result = commit_names(name);
    return result == RIALTO_OK ? SQLITE_OK : failed(result, SQLITE_IOERR_DELETE);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int what, int *is_so) {
    rialto_status_t status;
    int result;

    (void)vfs;
    if (connected() == NULL) return SQLITE_IOERR_ACCESS;
    result = rialto_stat(cell, name, 1, &status);
    if (result != RIALTO_OK && result != RIALTO_ENOTFOUND) {
        return failed(result, SQLITE_IOERR_ACCESS);
    }
    /* A journal that was cut to nothing counts as none, as on Unix. */
    *is_so = result == RIALTO_OK && (what != SQLITE_ACCESS_EXISTS || status.size > 0);
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int bytes, char *to) {
    (void)vfs;
    while (*name == '/') name++;
    if (strlen(name) >= (size_t)bytes) return SQLITE_CANTOPEN;
    strcpy(to, name);
    return SQLITE_OK;
}

/* ---- The rest is the parent's ---------------------------------------------------------------- */

static int vfs_random(sqlite3_vfs *vfs, int bytes, char *to) {
    (void)vfs;
    return parent->xRandomness(parent, bytes, to);
}

static int vfs_sleep(sqlite3_vfs *vfs, int micros) {
    (void)vfs;
    return parent->xSleep(parent, micros);
}

static int vfs_now(sqlite3_vfs *vfs, double *now) {
    (void)vfs;
    return parent->xCurrentTime(parent, now);
}

static int vfs_now_int(sqlite3_vfs *vfs, sqlite3_int64 *now) {
    (void)vfs;
    return parent->xCurrentTimeInt64(parent, now);
}

static int vfs_last_error(sqlite3_vfs *vfs, int bytes, char *to) {
    (void)vfs;
    sqlite3_snprintf(bytes, to, "%s", rialto_error_text());
    return 0;
}

static sqlite3_vfs in_cell = {
    .iVersion = 2,
    .mxPathname = PATH_BYTES,
    .zName = "rialto",
    .xOpen = vfs_open,
    .xDelete = vfs_delete,
    .xAccess = vfs_access,
    .xFullPathname = vfs_full_path,
    .xRandomness = vfs_random,
    .xSleep = vfs_sleep,
    .xCurrentTime = vfs_now,
    .xGetLastError = vfs_last_error,
    .xCurrentTimeInt64 = vfs_now_int,
};

/* SQLite calls it when it loads the extension, which stays in the process. */
int sqlite3_rialtovfs_init(sqlite3 *database, char **error, const sqlite3_api_routines *api) {
    int result;

    (void)database;
    SQLITE_EXTENSION_INIT2(api);
    if (rialto_abi() != RIALTO_ABI) {
        *error = sqlite3_mprintf("librialto has interface %d, not %d", rialto_abi(), RIALTO_ABI);
        return SQLITE_ERROR;
    }
    parent = sqlite3_vfs_find(NULL);
    in_cell.szOsFile = (int)sizeof(cell_file) > parent->szOsFile ? (int)sizeof(cell_file)
                                                                 : parent->szOsFile;
    result = sqlite3_vfs_register(&in_cell, 0);
    return result == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : result;
}
