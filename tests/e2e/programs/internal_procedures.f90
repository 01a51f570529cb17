! Internal procedures passed as arguments inside regions: gfortran puts code for each on the stack.
module sums
contains
  integer(8) function over(f, n)
    interface
      integer(8) function f(i)
        integer, intent(in) :: i
      end function
    end interface
    integer, intent(in) :: n
    integer :: i
    over = 0
    do i = 1, n
      over = over + f(i)
    end do
  end function
end module
program main
  use sums
  integer(8) :: total, factor
  integer :: i
  factor = 3; total = 0
  !$omp parallel do reduction(+:total) num_threads(3)
  do i = 1, 200
    total = total + over(scaled, i)
  end do
  print '(i0)', total
contains
  integer(8) function scaled(i)
    integer, intent(in) :: i
    scaled = factor * i
  end function
end program
