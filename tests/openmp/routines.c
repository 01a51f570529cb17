/* Control variables, from the environment and by routine; allocators; the host as target. */
// env: OMP_SCHEDULE=guided,5 OMP_THREAD_LIMIT=64 OMP_STACKSIZE=3M OMP_PROC_BIND=true OMP_PLACES=threads
#include "check.h"
#include <stdint.h>
#include <string.h>

int main(void) {
    omp_sched_t kind;
    int chunk, threads = omp_get_max_threads();
    omp_get_schedule(&kind, &chunk);
    CHECK(kind == omp_sched_guided && chunk == 5);
    omp_set_schedule(omp_sched_static | omp_sched_monotonic, 4);
    omp_get_schedule(&kind, &chunk);
    CHECK((unsigned)kind == ((unsigned)omp_sched_static | (unsigned)omp_sched_monotonic) && chunk == 4);
    CHECK(omp_get_thread_limit() == 64);
    CHECK(!omp_get_cancellation() && !omp_get_dynamic());
    omp_set_dynamic(1);
    CHECK(omp_get_dynamic());
    omp_set_dynamic(0);
    omp_set_num_threads(5);
    CHECK(omp_get_max_threads() == 5);
#pragma omp parallel
    {
        CHECK(omp_get_num_threads() == 5);
        omp_set_num_threads(2);
        CHECK(omp_get_max_threads() == 2);
        char big[2 << 20];
        memset(big, 1, sizeof big);
        CHECK(big[12345] == 1);
    }
    CHECK(omp_get_max_threads() == 5);
    omp_set_num_threads(threads);
    CHECK(omp_get_num_procs() >= 1 && omp_get_num_devices() == 0 && omp_is_initial_device());
    CHECK(omp_get_supported_active_levels() > 1 && omp_get_max_active_levels() == 1);
    omp_set_max_active_levels(4);
    CHECK(omp_get_max_active_levels() == 4);
    CHECK(omp_get_num_teams() == 1 && omp_get_team_num() == 0);
    CHECK(omp_get_proc_bind() == omp_proc_bind_true);
    int places = omp_get_num_places(), ids[1024];
    CHECK(places >= 1 && omp_get_place_num_procs(0) == 1);
    omp_get_place_proc_ids(0, ids);
    CHECK(ids[0] >= 0 && omp_get_partition_num_places() == places);
    omp_get_partition_place_nums(ids);
    CHECK(ids[places - 1] == places - 1);
#pragma omp parallel
    CHECK(omp_get_place_num() >= 0 && omp_get_place_num() < places);
    char text[64];
    omp_set_affinity_format("%{thread_num}/%N %0.4L%%");
    size_t length = omp_capture_affinity(text, sizeof text, NULL);
    CHECK(length == 9 && !strcmp(text, "0/1 0000%"));

    omp_alloctrait_t traits[] = {{omp_atk_alignment, 256}};
    omp_allocator_handle_t allocator = omp_init_allocator(omp_default_mem_space, 1, traits);
    char *memory = omp_alloc(100, allocator);
    CHECK(memory && (uintptr_t)memory % 256 == 0);
    omp_free(memory, allocator);
    memory = omp_aligned_calloc(64, 10, 10, omp_default_mem_alloc);
    CHECK(memory && (uintptr_t)memory % 64 == 0 && !memory[99]);
    memory[0] = 7;
    memory = omp_realloc(memory, 5000, allocator, omp_null_allocator);
    CHECK(memory && memory[0] == 7 && (uintptr_t)memory % 256 == 0);
    omp_free(memory, omp_null_allocator);
    omp_destroy_allocator(allocator);
#pragma omp parallel
    {
        int mine = -1;
#pragma omp task private(mine) allocate(omp_thread_mem_alloc : mine)
        {
            mine = omp_get_thread_num();
            CHECK(mine == omp_get_thread_num());
        }
    }

    int data[10] = {0}, sum = 0, own = 3;
#pragma omp target map(tofrom : data) firstprivate(own)
    {
        own += 1;
        for (int i = 0; i < 10; i++)
            data[i] = own;
        CHECK(omp_get_level() == 0);
    }
    CHECK(data[9] == 4 && own == 3);
#pragma omp target teams distribute parallel for reduction(+ : sum) map(tofrom : sum)
    for (int i = 0; i < 1000; i++)
        sum += i;
    CHECK(sum == 499500);
#pragma omp target data map(to : data)
    {
#pragma omp target update to(data)
    }
#pragma omp target enter data map(to : data) depend(in : data) nowait
#pragma omp taskwait
    int seen = 0;
#pragma omp teams num_teams(3) reduction(+ : seen)
    seen += omp_get_num_teams() == 3 && omp_get_team_num() < 3;
    CHECK(seen == 3);
// Without a device to compile for, clang links no library that has these.
#ifndef __clang__
    void *there = omp_target_alloc(16, omp_get_initial_device());
    CHECK(there && !omp_target_memcpy(there, data, 16, 0, 0, 0, 0) && !memcmp(there, data, 16));
    omp_target_free(there, omp_get_initial_device());
#endif
    return result();
}
