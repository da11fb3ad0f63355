# Shared by the builds of source, prefix and wheel, which source it with their arguments. Sets
# `root`, the checkout; `output`, the folder for the artefact; and SOURCE_DATE_EPOCH, for all times.
part=$(basename -- "$(dirname -- "$0")")
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
output=$root/dist
if [[ ${1:-} == --output && $# == 2 ]]; then
  mkdir -p -- "$2"
  output=$(cd -- "$2" && pwd)
elif (($#)); then
  echo "usage: packaging/$part/build [--output DIR]" >&2
  exit 1
fi
cd -- "$root"

# missing WHAT PACKAGE...: notes what the build lacks.
lacking=()
packages=()
missing() {
  lacking+=("$1")
  packages+=("${@:2}")
}

# need_tools "TOOL[=PACKAGE]...": notes which of these tools are not installed.
need_tools() {
  local tool
  for tool in $1; do
    command -v "${tool%=*}" >/dev/null || missing "${tool%=*}" "${tool#*=}"
  done
}

# begin: exits with one line about everything that is missing, if anything; else makes the folder.
begin() {
  if ((${#lacking[@]})); then
    echo "$part: missing: $(IFS=,; echo "${lacking[*]}"): sudo apt install ${packages[*]}" >&2
    exit 2
  fi
  mkdir -p -- "$output"
  export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
}

# copy_tracked DIR: the files that git tracks, as they are in the working tree.
copy_tracked() {
  mkdir -p -- "$1"
  git ls-files -z | tar --create --null --files-from=- | tar --extract --directory="$1"
}

# pack NAME TAR-OPTION...: makes $output/NAME.tar.xz, reproducibly.
pack() {
  tar --create --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode='u=rwX,go=rX' "${@:2}" | xz -9 --threads=1 >"$output/$1.tar.xz"
  echo "$output/$1.tar.xz"
}

need_tools git
