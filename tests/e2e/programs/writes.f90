! write and print in regions, internal writes, unformatted files of large arrays, reads back, namelists.
program writes
  use omp_lib
  implicit none
  integer :: i, j, unit
  character(len=40) :: text
  real(8), allocatable :: x(:), y(:)
  character(len=200) :: path
  integer :: bad
  call get_command_argument(1, path)
  bad = 0
  do j = 1, 5
    !$omp parallel do schedule(static, 1) private(text)
    do i = 1, 24
      write (text, '(a,i0,a,i0)') 'line ', j, ' ', i
      print '(a)', trim(text)
      if (mod(i, 3) == 0) write (*, '(a,a)') 'written ', trim(text)
    end do
  end do
  allocate(x(3000000), y(3000000))
  !$omp parallel do
  do i = 1, 3000000
    x(i) = i * 0.5d0
  end do
  open(newunit=unit, file=trim(path)//'/array', form='unformatted', access='stream', status='replace')
  write(unit) x
  rewind(unit)
  read(unit) y
  close(unit, status='delete')
  !$omp parallel do reduction(+:bad)
  do i = 1, 3000000
    if (y(i) /= i * 0.5d0) bad = bad + 1
  end do
  print '(a,i0)', 'wrong ', bad
  if (bad /= 0) stop 1
end program
