! An array argument that is absent, of which a target region has a copy.
program main
  implicit none
  integer :: several(3)
  several = [1, 2, 3]
  print *, copied(several), copied()
contains
  integer function copied(given)
    integer, optional, intent(in) :: given(:)
    integer :: seen
    seen = 0
    !$omp target map(tofrom: seen) firstprivate(given)
    if (present(given)) then
      seen = sum(given)
    else
      seen = -1
    end if
    !$omp end target
    copied = seen
  end function
end program
