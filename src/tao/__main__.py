"""`python -m tao`."""

from tao.cli import main

main(prog_name="tao")
