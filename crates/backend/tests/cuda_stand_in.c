/* A CUDA driver without a GPU, for the tests: device memory is host memory at reserved addresses.
 * It refuses what the documentation forbids: mapping what is mapped, access without cuMemSetAccess. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)2 << 20)
#define TOTAL ((size_t)256 << 20)
#define INVALID 1
#define OUT_OF_MEMORY 2

typedef struct { int kind, id; } location;
typedef struct { int kind, handle_types; location where; void *windows; unsigned char flags[8]; } properties;
typedef struct { location where; int flags; } access_desc;

static size_t used;
static uint64_t next_handle = 1;
static int context_value, current;

int cuInit(unsigned flags) { return flags == 0 ? 0 : INVALID; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &context_value; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { current = context == &context_value; return current ? 0 : INVALID; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { *free_bytes = TOTAL - used; *total = TOTAL; return 0; }
int cuMemGetAllocationGranularity(size_t *page, const properties *wanted, int option) {
    *page = PAGE;
    return wanted->kind == 1 && wanted->where.kind == 1 && option == 0 ? 0 : INVALID;
}
int cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t fixed, unsigned long long flags) {
    (void)alignment;
    if (!current || size % PAGE || fixed || flags) return INVALID;
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (uint64_t)base;
    return base == MAP_FAILED ? OUT_OF_MEMORY : 0;
}
int cuMemAddressFree(uint64_t address, size_t size) { return munmap((void *)address, size) ? INVALID : 0; }
int cuMemCreate(uint64_t *handle, size_t size, const properties *wanted, unsigned long long flags) {
    if (size % PAGE || wanted->kind != 1 || flags) return INVALID;
    if (used + size > TOTAL) return OUT_OF_MEMORY;
    used += size;
    *handle = next_handle++;
    return 0;
}
int cuMemRelease(uint64_t handle) { if (!handle) return INVALID; used -= PAGE; return 0; }
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    return size == PAGE && !offset && handle && !flags && address % 4096 == 0 ? 0 : INVALID;
}
int cuMemUnmap(uint64_t address, size_t size) {
    void *fresh = mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return fresh == MAP_FAILED ? INVALID : 0;
}
int cuMemSetAccess(uint64_t address, size_t size, const access_desc *access, size_t count) {
    if (count != 1 || access->flags != 3 || access->where.kind != 1) return INVALID;
    return mprotect((void *)address, size, PROT_READ | PROT_WRITE) ? INVALID : 0;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size) { memset((void *)address, value, size); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    if (!stream) return INVALID;
    memcpy((void *)to, (void *)from, size);
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(1); return flags == 1 ? 0 : INVALID; }
int cuStreamSynchronize(void *stream) { return stream ? 0 : INVALID; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(int)); return flags == 2 ? 0 : INVALID; }
int cuEventRecord(void *event, void *stream) { return event && stream ? 0 : INVALID; }
/* Not ready the first two times. */
int cuEventQuery(void *event) { return ++*(int *)event > 2 ? 0 : 600; }
int cuEventSynchronize(void *event) { *(int *)event = 100; return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuGetErrorString(int status, const char **text) {
    *text = status == OUT_OF_MEMORY ? "out of memory" : "invalid argument";
    return 0;
}
