! Units of libgfortran: unformatted and formatted, arrays larger than near memory.
program units
  implicit none
  real(8), allocatable :: a(:), b(:)
  integer :: i, n
  character(20) :: word
  n = 8 * 1024 * 1024
  allocate(a(n), b(n))
  do i = 1, n
    a(i) = i
  end do
  open(10, file='raw', form='unformatted', access='stream')
  write(10) a
  close(10)
  open(10, file='raw', form='unformatted', access='stream')
  read(10) b
  close(10)
  if (any(a /= b)) stop 1
  open(11, file='sequential', form='unformatted')
  write(11) a(1:1000000)
  rewind(11)
  b = 0
  read(11) b(1:1000000)
  if (any(a(1:1000000) /= b(1:1000000))) stop 2
  close(11)
  open(12, file='text')
  write(12, '(f12.1)') a(1:100000)
  rewind(12)
  read(12, *) b(1:100000)
  if (any(a(1:100000) /= b(1:100000))) stop 3
  write(word, '(i0)') n
  print *, trim(word), ' good'
end program
