// The executor's kernels. Every buffer comes with the offset of the operand's first byte.

inline float folded(float value, int fold) { return fold ? (float)((int)value % 17) : value; }

inline __global float *floats(__global uchar *memory, ulong offset) { return (__global float *)(memory + offset); }

__kernel void copy_bytes(__global uchar *from, ulong from_offset, __global uchar *to, ulong to_offset, ulong bytes) {
    ulong start = get_global_id(0) * 16;
    if (start + 16 <= bytes) {
        vstore16(vload16(0, from + from_offset + start), 0, to + to_offset + start);
    } else {
        for (ulong index = start; index < bytes; index++) to[to_offset + index] = from[from_offset + index];
    }
}

__kernel void add(__global uchar *left, ulong left_offset, __global uchar *right, ulong right_offset,
                  __global uchar *to, ulong to_offset, ulong count, int fold) {
    ulong index = get_global_id(0);
    if (index < count) {
        float sum = floats(left, left_offset)[index] + floats(right, right_offset)[index];
        floats(to, to_offset)[index] = folded(sum, fold);
    }
}

// A work item makes four rows of eight columns.
__kernel void matmul(__global uchar *left_memory, ulong left_offset, __global uchar *right_memory, ulong right_offset,
                     __global uchar *to_memory, ulong to_offset, uint rows, uint columns, uint depth, int fold) {
    __global float *left = floats(left_memory, left_offset);
    __global float *right = floats(right_memory, right_offset);
    __global float *to = floats(to_memory, to_offset);
    ulong column = get_global_id(0) * 8, row = get_global_id(1) * 4;
    if (column >= columns || row >= rows) return;
    if (column + 8 <= columns && row + 4 <= rows) {
        float8 a = 0, b = 0, c = 0, d = 0;
        for (ulong inner = 0; inner < depth; inner++) {
            float8 values = vload8(0, right + inner * columns + column);
            a += left[row * depth + inner] * values;
            b += left[(row + 1) * depth + inner] * values;
            c += left[(row + 2) * depth + inner] * values;
            d += left[(row + 3) * depth + inner] * values;
        }
        if (fold) {
            a = convert_float8(convert_int8(a) % 17);
            b = convert_float8(convert_int8(b) % 17);
            c = convert_float8(convert_int8(c) % 17);
            d = convert_float8(convert_int8(d) % 17);
        }
        vstore8(a, 0, to + row * columns + column);
        vstore8(b, 0, to + (row + 1) * columns + column);
        vstore8(c, 0, to + (row + 2) * columns + column);
        vstore8(d, 0, to + (row + 3) * columns + column);
        return;
    }
    for (ulong y = row; y < min((ulong)rows, row + 4); y++) {
        for (ulong x = column; x < min((ulong)columns, column + 8); x++) {
            float sum = 0;
            for (ulong inner = 0; inner < depth; inner++) sum += left[y * depth + inner] * right[inner * columns + x];
            to[y * columns + x] = folded(sum, fold);
        }
    }
}

// A work item makes eight neighbours of a row of results.
// `sizes`: channels, high, wide; out channels, high, wide. `steps`: window; strides; padding; dilations.
__kernel void convolution(__global uchar *input_memory, ulong input_offset, __global uchar *weight_memory,
                          ulong weight_offset, __global uchar *to_memory, ulong to_offset, uint8 sizes, uint8 steps,
                          uint groups, ulong lines, int fold) {
    __global float *input = floats(input_memory, input_offset);
    __global float *weights = floats(weight_memory, weight_offset);
    ulong line = get_global_id(1);
    long x = (long)get_global_id(0) * 8;
    if (line >= lines || x >= sizes.s5) return;
    ulong y = line % sizes.s4, out = line / sizes.s4 % sizes.s3, image = line / ((ulong)sizes.s4 * sizes.s3);
    ulong inner = sizes.s0 / groups, first = out / (sizes.s3 / groups) * inner;
    long wide = sizes.s2, stride = steps.s3;
    float8 sum = 0;
    for (ulong channel = 0; channel < inner; channel++) {
        __global float *plane = input + ((image * sizes.s0 + first + channel) * sizes.s1) * sizes.s2;
        __global float *window = weights + (out * inner + channel) * steps.s0 * steps.s1;
        for (uint tap_y = 0; tap_y < steps.s0; tap_y++) {
            long row = (long)(y * steps.s2 + (ulong)tap_y * steps.s6) - (long)steps.s4;
            if (row < 0 || row >= sizes.s1) continue;
            __global float *values = plane + row * wide;
            for (uint tap_x = 0; tap_x < steps.s1; tap_x++) {
                float weight = window[tap_y * steps.s1 + tap_x];
                long start = x * stride + (long)tap_x * steps.s7 - (long)steps.s5;
                if (stride == 1 && start >= 0 && start + 8 <= wide) {
                    sum += weight * vload8(0, values + start);
                } else {
                    float near[8];
                    for (int lane = 0; lane < 8; lane++) {
                        long column = start + lane * stride;
                        near[lane] = column >= 0 && column < wide ? values[column] : 0.0f;
                    }
                    sum += weight * vload8(0, near);
                }
            }
        }
    }
    if (fold) sum = convert_float8(convert_int8(sum) % 17);
    __global float *to = floats(to_memory, to_offset) + line * sizes.s5 + x;
    if (x + 8 <= sizes.s5) {
        vstore8(sum, 0, to);
    } else {
        float parts[8];
        vstore8(sum, 0, parts);
        for (int lane = 0; x + lane < sizes.s5; lane++) to[lane] = parts[lane];
    }
}

inline int element(__global uchar *memory, ulong offset, int is_float, ulong index) {
    return is_float ? (int)floats(memory, offset)[index] : (int)memory[offset + index];
}

inline void put(__global uchar *memory, ulong offset, int is_float, ulong index, int value) {
    if (is_float) {
        floats(memory, offset)[index] = (float)(value % 17);
    } else {
        memory[offset + index] = (uchar)value;
    }
}

__kernel void mix_elements(__global uchar *from, ulong from_offset, ulong from_count, int from_float,
                           __global uchar *to, ulong to_offset, ulong count, int to_float, int accumulate) {
    ulong index = get_global_id(0);
    if (index >= count) return;
    uint old = accumulate ? (uint)element(to, to_offset, to_float, index) : 0;
    uint read = from_count ? (uint)element(from, from_offset, from_float, index % from_count) : 0;
    put(to, to_offset, to_float, index, (int)(read * 5 + old * 3 + (uint)(index % 13)));
}

__kernel void pattern(__global uchar *to, ulong to_offset, ulong count, int to_float, uint seed, ulong first) {
    ulong index = get_global_id(0);
    if (index >= count) return;
    ulong position = first + index;
    uint mixed = (((uint)position ^ (uint)(position >> 32)) * 0x9e3779b1u) ^ (seed * 0x85ebca77u);
    uint value = ((mixed ^ (mixed >> 15)) * 0x2c1b3c6du) >> 16;
    put(to, to_offset, to_float, index, to_float ? (int)(value % 9) - 4 : (int)value);
}

__kernel void chase(__global uchar *table_memory, ulong table_offset, uint count, ulong steps, __global uchar *to,
                    ulong to_offset) {
    __global uint *table = (__global uint *)(table_memory + table_offset);
    __global uint *result = (__global uint *)(to + to_offset);
    uint at = result[0];
    for (ulong step = 0; step < steps && at < count; step++) at = table[at];
    result[0] = at;
}

inline ulong scatter(ulong index, ulong words) {
    uint mixed = ((uint)index * 0x9e3779b1u) ^ (uint)(index >> 32);
    mixed = (mixed ^ (mixed >> 15)) * 0x2c1b3c6du;
    return (ulong)(mixed ^ (mixed >> 13)) % words;
}

// One work item a lane.
__kernel void read_words(__global uchar *from, ulong from_offset, ulong words, int access, ulong accesses, uint lanes,
                         __global uchar *to, ulong to_offset) {
    __global uint *source = (__global uint *)(from + from_offset);
    ulong lane = get_global_id(0);
    if (lane >= lanes) return;
    uint sum = 0;
    ulong at = accesses * lane / lanes, end = accesses * (lane + 1) / lanes;
    if (words == 0) {
        end = at;
    } else if (access == 0) {
        while (at < end) {
            ulong start = at % words, run = min(words - start, end - at), index = 0;
            uint16 sums = 0;
            for (; index + 16 <= run; index += 16) sums += vload16(0, source + start + index);
            uint8 eight = sums.lo + sums.hi;
            uint4 quarter = eight.lo + eight.hi;
            sum += quarter.s0 + quarter.s1 + quarter.s2 + quarter.s3;
            for (; index < run; index++) sum += source[start + index];
            at += run;
        }
    } else if (access == 1) {
        ulong lap = max(words / 64, (ulong)1);
        while (at < end) {
            ulong run = min(lap - at % lap, end - at), first = at % lap * 64 + at / lap % 64;
            for (ulong step = 0; step < run; step++) {
                ulong place = first + step * 64;
                sum += source[place < words ? place : place % words];
            }
            at += run;
        }
    } else {
        for (; at < end; at++) sum += source[scatter(at, words)];
    }
    ((__global uint *)(to + to_offset))[lane] = sum;
}
