#!/usr/bin/env bash
# Makes .venv with the versions of requirements.lock, and sees that guests can be confined here.
#
# Run by every make target that needs it; done in a moment where all is ready. What is missing is
# looked for before anything is changed. It either ends with everything ready, or prints the one
# line to run and exits with 1. A new .venv that was not finished is removed again.
#
#   PYTHON=/path/to/python3.12 scripts/setup.sh      takes that interpreter
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
readonly root=$PWD
readonly venv=.venv
readonly stamp=$venv/.touchstone     # three lines: hash of what was installed, Python, checkout
readonly UNFINISHED="not finished"   # in place of the hash
readonly NEW="new"                   # in place of the checkout, until the first set-up is through
readonly OLDEST_BWRAP="0.8"          # the first with --disable-userns and --size

# Settings of the user's shell or pip that would put packages elsewhere, or other packages in.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# To stderr: what a target prints may be piped into a file.
say() { printf 'setup: %s\n' "$*" >&2; }
# The lines after the first are for copying.
fail() { { printf 'setup: %s\n' "$1"; shift; printf '%s' "${@/%/$'\n'}"; } >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# ---------------------------------------------------------------- is there anything to do?

python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
supported() { case $1 in 3.11|3.12|3.13) return 0 ;; *) return 1 ;; esac; }

# What an environment is made of. Its lines are compared with those of the stamp.
wanted_hash() { cat requirements.lock pyproject.toml | sha256sum | cut -d ' ' -f 1; }

read_stamp() {
    stamped_hash='' stamped_python='' stamped_root=''
    if [[ -f $stamp ]]; then
        { read -r stamped_hash; read -r stamped_python; IFS= read -r stamped_root; } <"$stamp" || true
    fi
}

# The interpreter that the user named must be of the version that the environment has.
environment_is_usable() {
    [[ -x $venv/bin/python && $stamped_root == "$root" ]] || return 1
    [[ -z ${PYTHON:-} || $(python_version "$PYTHON") == "$stamped_python" ]]
}

ready() {
    read_stamp
    [[ $stamped_hash == "$(wanted_hash)" ]] && environment_is_usable && has bwrap
}

ready && exit 0

[[ $(uname -s) == Linux ]] || fail "guests are confined by Linux namespaces: this needs Linux, not $(uname -s)"

# One set-up at a time. The checkout itself is the lock, and pip inherits it: should this script be
# killed, the next one waits until what it left running has ended.
exec 9<.
if ! flock --nonblock 9; then
    say "another set-up is running here; waiting for it"
    flock 9
fi
ready && exit 0

# ---------------------------------------------------------------- what is missing?

packages=()                          # Debian's names
python=''
python_found=''                      # its version

# A Python that can make environments is taken before one that cannot yet.
find_python() {
    local candidate version without_venv=''
    local candidates=(python3 python3.13 python3.12 python3.11)
    [[ -n ${PYTHON:-} ]] && candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(python_version "$candidate") || continue
        supported "$version" || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            python=$candidate python_found=$version
            return
        fi
        [[ -n $without_venv ]] || without_venv=$candidate
    done
    if [[ -n $without_venv ]]; then
        python=$without_venv python_found=$(python_version "$without_venv")
        [[ $(command -v "$python") == /usr/bin/* ]] \
            || fail "$python cannot make virtual environments (no ensurepip); name another: make ... PYTHON=/path/to/python3"
        packages+=("python$python_found-venv")
    elif [[ -n ${PYTHON:-} ]]; then
        version=$(python_version "$PYTHON") \
            && fail "PYTHON=$PYTHON is Python $version; Touchstone needs 3.11, 3.12 or 3.13"
        fail "PYTHON=$PYTHON does not run"
    else
        fail "no Python 3.11, 3.12 or 3.13 is on the PATH; name one: make ... PYTHON=/path/to/python3" \
            "Debian 12 or Ubuntu 24.04 and newer have it: apt-get install -y python3 python3-venv"
    fi
}

find_packages() {
    has bwrap || packages+=(bubblewrap)
    "$python" -c 'import ctypes; ctypes.CDLL("libseccomp.so.2")' 2>/dev/null || packages+=(libseccomp2)
    [[ $EUID -ne 0 ]] || has setpriv || packages+=(util-linux)
}

switch() { [[ -r /proc/sys/$1 && $(cat "/proc/sys/$1") == "$2" ]]; }

# Where a system keeps normal users from making namespaces, the line that lets them. `certain`: only
# the settings that leave no doubt; Ubuntu's AppArmor may make an exception for bwrap.
namespaces_remedy() {
    [[ $EUID -ne 0 ]] || return 0
    if switch kernel/unprivileged_userns_clone 0; then
        echo "sysctl -w kernel.unprivileged_userns_clone=1"
    elif switch user/max_user_namespaces 0; then
        echo "sysctl -w user.max_user_namespaces=10000"
    elif [[ ${1:-} != certain ]] && switch kernel/apparmor_restrict_unprivileged_userns 1; then
        echo "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    fi
}

# Makes the namespaces that a guest gets. Prints why not.
probe() {
    local options=(--unshare-pid --unshare-net --unshare-ipc --unshare-uts --ro-bind / / --proc /proc)
    [[ $EUID -eq 0 ]] || options+=(--unshare-user --disable-userns)
    env -i "$(command -v bwrap)" "${options[@]}" -- /bin/true 2>&1
}

check_bwrap() {
    local version said remedy
    version=$(bwrap --version 2>/dev/null | grep -o '[0-9][0-9.]*') || fail "bwrap does not run; try: bwrap --version"
    [[ $(printf '%s\n' "$OLDEST_BWRAP" "$version" | sort -V | head -n 1) == "$OLDEST_BWRAP" ]] \
        || fail "bubblewrap $version is too old; $OLDEST_BWRAP or newer is needed (Debian 12, Ubuntu 24.04)"
    said=$(probe) && return
    remedy=$(namespaces_remedy)
    if [[ -n $remedy ]]; then
        fail "normal users may not make namespaces on this machine, so guests cannot be confined; run:" \
            "    sudo $remedy"
    elif [[ -e /.dockerenv || -e /run/.containerenv ]]; then
        fail "this container's profile forbids namespaces (${said:-bwrap fails}); start it with:" \
            "    docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined ..."
    fi
    fail "bwrap cannot make namespaces here (${said:-it says nothing}); run as root, or on a machine that permits them"
}

install_packages() {
    local as=() log remedy
    local quiet=(-qq -o DPkg::Lock::Timeout=120)
    if ! has apt-get; then
        fail "please install with this system's package manager: ${packages[*]}"
    elif [[ $EUID -ne 0 ]]; then
        if ! { has sudo && sudo -n true 2>/dev/null; }; then
            # All that root has to do, in one line.
            remedy=$(namespaces_remedy certain)
            fail "root is needed once; run this, then the same command again:" \
                "    sudo apt-get update && sudo apt-get install -y ${packages[*]}${remedy:+ && sudo $remedy}"
        fi
        as=(sudo -n)
    fi
    say "installing ${packages[*]} (apt-get)"
    log=$("${as[@]}" apt-get "${quiet[@]}" update 2>&1 </dev/null) \
        || fail "apt-get update failed:" "$(tail -n 5 <<<"$log")"
    log=$("${as[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get "${quiet[@]}" install -y "${packages[@]}" 2>&1 </dev/null) \
        || fail "apt-get install ${packages[*]} failed:" "$(tail -n 5 <<<"$log")"
}

# ---------------------------------------------------------------- the environment

child=''
remove_on_exit=''

# In the background, so that a signal is seen at once and not when pip is through; and as a process
# group, because venv and pip have children of their own.
run() {
    setsid "$@" &
    child=$!
    wait "$child"
    child=''
}

stop_child() {
    kill -TERM -- "-$child" 2>/dev/null || return 0
    for _ in {1..50}; do
        kill -0 -- "-$child" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$child" 2>/dev/null || true
    sleep 0.5
}

# Under another name first, so that at any moment .venv is whole, marked as unfinished, or not there.
remove_environment() {
    rm -rf "$venv.removed"
    mv "$venv" "$venv.removed"
    rm -rf "$venv.removed"
}

begin_environment() {
    rm -rf "$venv.new"
    mkdir "$venv.new"
    printf '%s\n' "$UNFINISHED" "$python_found" "$NEW" >"$venv.new/${stamp##*/}"
    mv "$venv.new" "$venv"
}

clean_up() {
    local status=$?
    trap - EXIT
    trap '' HUP INT TERM
    [[ -z $child ]] || stop_child
    if [[ -n $remove_on_exit && $status -ne 0 ]]; then
        [[ ! -e $venv ]] || remove_environment
        printf 'setup: not finished; the incomplete %s was removed\n' "$venv" >&2
    fi
    exit "$status"
}

make_environment() {
    if [[ $stamped_hash == "$UNFINISHED" && $stamped_root == "$NEW" ]]; then
        say "removing a $venv that an earlier set-up left unfinished"
        remove_environment
    elif [[ -n $stamped_hash ]] && ! environment_is_usable; then
        say "removing a $venv of another Python or place"
        remove_environment
    fi
    if [[ -e $venv || -L $venv ]]; then
        # Of an older lock, or made by hand. It is kept, whatever happens.
        local chosen=$python_found
        { python_found=$(python_version "$venv/bin/python") && supported "$python_found"; } \
            || fail "$venv holds no Python 3.11, 3.12 or 3.13; move it away and run the same command again"
        [[ -z ${PYTHON:-} || $python_found == "$chosen" ]] \
            || fail "$venv holds Python $python_found, not $chosen; move it away and run the same command again"
        say "bringing $venv (Python $python_found) up to requirements.lock"
        printf '%s\n' "$UNFINISHED" "$python_found" "$root" >"$stamp"
    else
        say "making $venv with $(command -v "$python") (Python $python_found)"
        remove_on_exit=yes
        begin_environment
        run "$python" -m venv "$venv"
        say "installing the packages of requirements.lock: minutes; about 2 GB of disk (several where pip picks a CUDA build of torch)"
    fi
    run "$venv/bin/python" -m pip install -qq -r requirements.lock
    run "$venv/bin/python" -m pip install -qq --no-deps --no-build-isolation -e .
    printf '%s\n' "$(wanted_hash)" "$python_found" "$root" >"$stamp.new"
    mv "$stamp.new" "$stamp"
    say "ready"
}

find_python
find_packages
if has bwrap; then check_bwrap; fi
if ((${#packages[@]})); then
    install_packages
    packages=()
    find_python
    find_packages
    ((${#packages[@]} == 0)) || fail "still missing after the installation: ${packages[*]}"
    check_bwrap
fi

trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
make_environment
