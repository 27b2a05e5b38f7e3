// Drives DRAMsim3 through the patterns of `cargo xtask bench dram`: closed loop, reads only, in order.
// usage: driver CONFIG PATTERN OUTSTANDING COUNT   prints one JSON line
#include "memory_system.h"
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

static const uint64_t kCapacity = 8ull << 30, kBurst = 64;

static std::vector<uint64_t> addresses(const std::string &pattern, uint64_t count) {
    std::vector<uint64_t> found;
    std::mt19937_64 random(1);
    unsigned long a = 0, b = 0, c = 0;
    while (found.size() < count) {
        if (pattern == "stream") {
            found.push_back(found.size() * kBurst % kCapacity);
        } else if (std::sscanf(pattern.c_str(), "rand:%lu", &a) == 1) {
            uint64_t start = random() % (kCapacity / a) * a;
            for (uint64_t at = 0; at < a && found.size() < count; at += kBurst) found.push_back(start + at);
        } else if (std::sscanf(pattern.c_str(), "stride:%lu", &a) == 1) {
            uint64_t per_wrap = kCapacity / a, n = found.size();
            found.push_back(n % per_wrap * a + n / per_wrap * kBurst);
        } else if (std::sscanf(pattern.c_str(), "tile:%lu:%lu:%lu", &a, &b, &c) == 3) {
            uint64_t start = random() % (kCapacity / 2 / 4096) * 4096;
            for (uint64_t row = 0; row < a; row++)
                for (uint64_t at = 0; at < b && found.size() < count; at += kBurst)
                    found.push_back(start + row * c + at);
        } else {
            std::fprintf(stderr, "no such pattern: %s\n", pattern.c_str());
            std::exit(2);
        }
    }
    return found;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: driver CONFIG PATTERN OUTSTANDING COUNT\n");
        return 2;
    }
    const uint64_t outstanding = std::strtoull(argv[3], nullptr, 10), count = std::strtoull(argv[4], nullptr, 10);
    const std::vector<uint64_t> wanted = addresses(argv[2], count);
    uint64_t under_way = 0, done = 0, clock = 0, next = 0;
    dramsim3::MemorySystem memory(
        argv[1], ".", [&](uint64_t) { under_way--, done++; }, [](uint64_t) {});
    const std::clock_t started = std::clock();
    while (done < count) {
        memory.ClockTick();
        clock++;
        for (int offer = 0; offer < 16 && next < count && under_way < outstanding; offer++) {
            if (!memory.WillAcceptTransaction(wanted[next], false)) break;
            memory.AddTransaction(wanted[next++], false);
            under_way++;
        }
    }
    const double seconds = double(std::clock() - started) / CLOCKS_PER_SEC;
    std::printf("{\"pattern\":\"%s\",\"requests\":%llu,\"clocks\":%llu,\"cpu_seconds\":%.3f,\"requests_per_second\":%.0f}\n",
                argv[2], (unsigned long long)count, (unsigned long long)clock, seconds, count / seconds);
    return 0;
}
