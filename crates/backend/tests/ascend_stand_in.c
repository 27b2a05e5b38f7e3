/* AscendCL without an NPU, for the tests: device memory is host memory at reserved addresses.
 * It refuses what the documentation forbids: a handle mapped in part, an unmap of what is not mapped. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)2 << 20)
#define TOTAL ((size_t)256 << 20)
#define INVALID 107000
#define OUT_OF_MEMORY 207001
#define MOST 64

typedef struct { uint32_t id; int type; } location;
typedef struct { int handle_type, allocation_type, attribute; location where; uint64_t reserve; } properties;
typedef struct { void *at; } physical;

static size_t used;
static int started, device_set;
static struct { void *base; size_t size; } reservations[MOST];
static const char *message = "";

static int fail(int status, const char *text) { message = text; return status; }
const char *aclGetRecentErrMsg(void) { return message; }
int aclInit(const char *config) { (void)config; return started++ ? 100002 : 0; }
int aclrtSetDevice(int32_t device) { device_set = device == 0; return device_set ? 0 : fail(INVALID, "no such device"); }
int aclrtResetDevice(int32_t device) { return device == 0 ? 0 : INVALID; }
int aclrtGetMemInfo(int attribute, size_t *free_bytes, size_t *total) {
    *free_bytes = TOTAL - used;
    *total = TOTAL;
    return attribute == 1 ? 0 : INVALID;
}
int aclrtMemGetAllocationGranularity(properties *wanted, int option, size_t *page) {
    *page = PAGE;
    return wanted->attribute == 4 && wanted->where.type == 1 && option == 0 ? 0 : INVALID;
}
int aclrtReserveMemAddress(void **address, size_t size, size_t alignment, void *expected, uint64_t flags) {
    if (!device_set || size % PAGE || alignment || expected || flags != 1) return fail(INVALID, "bad reservation");
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return OUT_OF_MEMORY;
    for (int i = 0; i < MOST; i++)
        if (!reservations[i].base) {
            reservations[i].base = base;
            reservations[i].size = size;
            *address = base;
            return 0;
        }
    return OUT_OF_MEMORY;
}
int aclrtReleaseMemAddress(void *address) {
    for (int i = 0; i < MOST; i++)
        if (reservations[i].base == address) {
            munmap(address, reservations[i].size);
            reservations[i].base = NULL;
            return 0;
        }
    return fail(INVALID, "not reserved");
}
static physical *mapped[1 << 16];
int aclrtMallocPhysical(void **handle, size_t size, const properties *wanted, uint64_t flags) {
    if (size != PAGE || wanted->handle_type || wanted->attribute != 4 || flags) return fail(INVALID, "bad properties");
    if (used + size > TOTAL) return fail(OUT_OF_MEMORY, "device memory is used up");
    used += size;
    *handle = calloc(1, sizeof(physical));
    return 0;
}
int aclrtFreePhysical(void *handle) {
    if (((physical *)handle)->at) return fail(INVALID, "still mapped");
    used -= PAGE;
    free(handle);
    return 0;
}
int aclrtMapMem(void *address, size_t size, size_t offset, void *handle, uint64_t flags) {
    if (size != PAGE || offset || flags || ((physical *)handle)->at) return fail(INVALID, "a whole handle, once");
    if (mprotect(address, size, PROT_READ | PROT_WRITE)) return fail(INVALID, "not reserved");
    ((physical *)handle)->at = address;
    for (int i = 0; i < 1 << 16; i++)
        if (!mapped[i]) { mapped[i] = handle; return 0; }
    return OUT_OF_MEMORY;
}
int aclrtUnmapMem(void *address) {
    for (int i = 0; i < 1 << 16; i++)
        if (mapped[i] && mapped[i]->at == address) {
            mmap(address, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            mapped[i]->at = NULL;
            mapped[i] = NULL;
            return 0;
        }
    return fail(INVALID, "not mapped");
}
int aclrtMemset(void *to, size_t room, int32_t value, size_t count) {
    if (count > room) return INVALID;
    memset(to, value, count);
    return 0;
}
int aclrtMemcpy(void *to, size_t room, const void *from, size_t count, int kind) {
    if (count > room || (kind != 1 && kind != 2)) return fail(INVALID, "bad copy");
    memcpy(to, from, count);
    return 0;
}
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t count, int kind, void *stream) {
    if (count > room || kind != 3 || !stream) return fail(INVALID, "bad copy");
    memcpy(to, from, count);
    return 0;
}
int aclrtCreateStream(void **stream) { *stream = malloc(1); return 0; }
int aclrtSynchronizeStream(void *stream) { return stream ? 0 : INVALID; }
int aclrtDestroyStream(void *stream) { free(stream); return 0; }
int aclrtCreateEvent(void **event) { *event = calloc(1, sizeof(int)); return 0; }
int aclrtRecordEvent(void *event, void *stream) { return event && stream ? 0 : INVALID; }
/* Not ready the first two times. */
int aclrtQueryEventStatus(void *event, int *status) { *status = ++*(int *)event > 2; return 0; }
int aclrtSynchronizeEvent(void *event) { *(int *)event = 100; return 0; }
int aclrtDestroyEvent(void *event) { free(event); return 0; }
