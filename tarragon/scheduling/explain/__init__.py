"""Why a gang waits, and until when: codes, messages and figures that the CLI presents."""
