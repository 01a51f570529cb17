! Fortran: loops, workshare, tasks, locks and the routines' Fortran names.
program fortran
  use omp_lib
  implicit none
  integer, parameter :: n = 500
  integer :: i, total, threads, failures, chunk
  integer(8) :: long_sum
  integer :: hits(n)
  real(8) :: a(n), b(n), began
  integer(omp_lock_kind) :: lock
  integer(omp_nest_lock_kind) :: nest
  integer(omp_sched_kind) :: kind
  character(len=32) :: text
  integer, save :: kept = 1
  !$omp threadprivate(kept)

  failures = 0
  threads = omp_get_max_threads()
  began = omp_get_wtime()
  total = 0
  !$omp parallel reduction(+:total)
  total = total + 1
  if (omp_get_num_threads() /= threads) failures = failures + 1
  !$omp end parallel
  call check(total == threads, 'team size')

  hits = 0
  !$omp parallel do schedule(dynamic, 3)
  do i = n, 1, -1
    !$omp atomic
    hits(i) = hits(i) + 1
  end do
  call check(all(hits == 1), 'dynamic loop')

  long_sum = 0
  !$omp parallel do ordered schedule(static, 1) reduction(+:long_sum)
  do i = 1, n
    !$omp ordered
    hits(i) = merge(i, 0, i == 1 .or. hits(max(i - 1, 1)) == i - 1)
    !$omp end ordered
    long_sum = long_sum + i
  end do
  call check(hits(n) == n .and. long_sum == int(n, 8) * (n + 1) / 2, 'ordered loop')

  !$omp parallel workshare
  a = 1d0
  b = a * 2d0
  !$omp end parallel workshare
  call check(abs(sum(b) - 2d0 * n) < 1d-9, 'workshare')

  call omp_init_lock(lock)
  call omp_init_nest_lock(nest)
  total = 0
  !$omp parallel private(i)
  do i = 1, 200
    call omp_set_lock(lock)
    total = total + 1
    call omp_unset_lock(lock)
    call omp_set_nest_lock(nest)
    if (omp_test_nest_lock(nest) /= 2) failures = failures + 1
    total = total + 1
    call omp_unset_nest_lock(nest)
    call omp_unset_nest_lock(nest)
    !$omp critical(name)
    total = total + 0
    !$omp end critical(name)
  end do
  !$omp end parallel
  call check(omp_test_lock(lock), 'lock is free')
  call omp_unset_lock(lock)
  call omp_destroy_lock(lock)
  call omp_destroy_nest_lock(nest)
  call check(total >= 200 * threads, 'locks')

  kept = 4
  total = 0
  !$omp parallel copyin(kept) reduction(+:total)
  total = kept
  kept = omp_get_thread_num()
  !$omp end parallel
  call check(total == 4 * threads, 'copyin')
  !$omp parallel reduction(+:failures)
  if (kept /= omp_get_thread_num()) failures = failures + 1
  !$omp end parallel

  !$omp parallel
  !$omp single
  total = fib(15)
  !$omp end single
  !$omp end parallel
  call check(total == 610, 'tasks')

  call omp_set_schedule(omp_sched_guided, 7)
  call omp_get_schedule(kind, chunk)
  call check(kind == omp_sched_guided .and. chunk == 7, 'schedule')
  call omp_set_num_threads(3_8)
  call check(omp_get_max_threads() == 3, 'num_threads')
  call omp_set_dynamic(.false.)
  call check(.not. omp_get_dynamic() .and. .not. omp_in_parallel(), 'logicals')
  call omp_set_affinity_format('level %L')
  chunk = omp_capture_affinity(text, '')
  call check(chunk == 7 .and. text == 'level 0', 'affinity format')
  call check(omp_get_wtime() >= began, 'time')
  if (failures /= 0) stop 1
contains
  subroutine check(fine, what)
    logical, intent(in) :: fine
    character(len=*), intent(in) :: what
    if (.not. fine) then
      write (0, *) 'failed: ', what
      failures = failures + 1
    end if
  end subroutine check
  recursive function fib(k) result(value)
    integer, intent(in) :: k
    integer :: value, x, y
    if (k < 2) then
      value = k
      return
    end if
    !$omp task shared(x)
    x = fib(k - 1)
    !$omp end task
    !$omp task shared(y)
    y = fib(k - 2)
    !$omp end task
    !$omp taskwait
    value = x + y
  end function fib
end program fortran
