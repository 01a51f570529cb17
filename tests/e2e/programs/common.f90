! COMMON blocks, allocatable arrays, threadprivate commons, module data, automatic arrays.
module store
  implicit none
  real(8), allocatable :: field(:,:)
  integer :: counter = 3
end module
program commons
  use store
  use omp_lib
  implicit none
  integer, parameter :: n = 2000000
  real(8) :: a, b
  common /big/ a(n), b(n)
  integer :: own
  common /mine/ own
  !$omp threadprivate(/mine/)
  integer :: i, j, bad
  real(8), allocatable :: w(:)
  bad = 0
  own = 9
  !$omp parallel copyin(/mine/)
  if (own /= 9) then
    !$omp atomic
    bad = bad + 1
  end if
  own = omp_get_thread_num()
  !$omp end parallel
  !$omp parallel
  if (own /= omp_get_thread_num()) then
    !$omp atomic
    bad = bad + 1
  end if
  !$omp end parallel
  !$omp parallel do
  do i = 1, n
    a(i) = i
    b(i) = 2 * i
  end do
  call scale_them(3.0d0)
  allocate(field(300, 200))
  !$omp parallel do private(i)
  do j = 1, 200
    do i = 1, 300
      field(i, j) = i + 1000.0d0 * j
    end do
  end do
  !$omp parallel private(w) reduction(+:bad)
  allocate(w(100000))
  w = omp_get_thread_num()
  if (abs(sum(w) - 100000.0d0 * omp_get_thread_num()) > 0) bad = bad + 1
  deallocate(w)
  !$omp end parallel
  field = transpose(reshape(field, [200, 300]))
  print '(a,es24.16)', 'sum a ', sum(a)
  print '(a,es24.16)', 'sum b ', sum(b)
  print '(a,es24.16)', 'field ', sum(field * field)
  print '(a,i0)', 'bad ', bad
  if (bad /= 0) stop 1
contains
  subroutine scale_them(f)
    real(8), intent(in) :: f
    real(8) :: x, y
    common /big/ x(n), y(n)
    integer :: k
    real(8) :: automatic(2000)
    automatic = f
    !$omp parallel do firstprivate(automatic)
    do k = 1, n
      x(k) = x(k) * automatic(mod(k, 2000) + 1)
      y(k) = y(k) + x(k)
    end do
  end subroutine
end program
