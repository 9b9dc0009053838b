# Prints the UUID of the one GPU that this container has, and holds the GPU until the pod is deleted.
# For any POSIX shell. Where the UUID is in no variable, it needs the nvidia-smi that NVIDIA's runtime brings.

trap 'kill "$!" 2> /dev/null; exit 0' TERM INT

case $NVIDIA_VISIBLE_DEVICES in
  GPU-* | MIG-*)
    echo "$NVIDIA_VISIBLE_DEVICES"
    ;;
  *)
    if ! listed=$(nvidia-smi -L 2>&1); then
      echo "nvidia-smi -L fails: $listed" >&2
      exit 1
    fi
    # A part of a GPU (MIG) is listed after the GPU.
    echo "$listed" | sed -n 's/.*(UUID: \([^)]*\)).*/\1/p' | tail -n 1
    ;;
esac

while :; do
  sleep 86400 &
  wait "$!"
done
