"""Why a gang waits, and until when: codes and figures that the CLI turns into sentences."""
