#!/bin/sh
# Installs the siskin command from the files of a release:
#
#   curl -fsSL https://github.com/siskin-ai/siskin/releases/latest/download/install.sh | sh
#
# Variables:
#   SISKIN_PREFIX  the folder to install into; default: ~/.local
#   SISKIN_URL     the folder with the release files; default: the release of this script
set -eu

version='@VERSION@'
public_key='@PUBLIC_KEY@'
# Else `cd` may print.
unset CDPATH

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Prints the architecture as release files name it.
architecture() {
    system=$(uname -s)
    [ "$system" = Linux ] || fail "there is no build for $system; build from source: cargo build --release -p siskin-cli"
    machine=$(uname -m)
    case $machine in
        x86_64 | amd64) echo amd64 ;;
        aarch64 | arm64) echo arm64 ;;
        *) fail "there is no build for $machine; build from source: cargo build --release -p siskin-cli" ;;
    esac
}

# Downloads $1 into the file $2.
download() {
    if has curl; then
        curl -fsSL --retry 2 --connect-timeout 30 --output "$2" "$1" || fail "$1 cannot be downloaded"
    elif has wget; then
        case $1 in
            https://*)
                # wget of BusyBox verifies certificates only by means of ssl_client.
                if wget --help 2>&1 | grep -q BusyBox && ! has ssl_client; then
                    fail 'this wget does not verify TLS certificates; install curl'
                fi
                ;;
        esac
        wget -q -O "$2" "$1" || fail "$1 cannot be downloaded"
    else
        fail 'curl or wget is needed'
    fi
}

# Prints the SHA-256 hash of a file.
hash_of() {
    if has sha256sum; then
        sha256sum < "$1" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a 256 < "$1" | cut -d ' ' -f 1
    elif has openssl; then
        openssl dgst -sha256 -r < "$1" | cut -d ' ' -f 1
    else
        fail 'sha256sum, shasum or openssl is needed to verify the download'
    fi
}

# Verifies the list of hashes against the signature, if the release is signed and minisign is installed.
verify_signature() {
    if [ -z "$public_key" ]; then
        return
    fi
    if ! has minisign; then
        echo 'The signature is not checked: minisign is not installed.' >&2
        return
    fi
    download "$url/SHA256SUMS.minisig" "$folder/SHA256SUMS.minisig"
    minisign -Vqm "$folder/SHA256SUMS" -P "$public_key" >/dev/null || fail "$url/SHA256SUMS has a wrong signature"
}

main() {
    case $version in
        *VERSION*) fail 'this is the template of a source tree; use install.sh of a release' ;;
    esac
    if [ -n "${SISKIN_PREFIX:-}" ]; then
        prefix=$SISKIN_PREFIX
    else
        [ -n "${HOME:-}" ] || fail 'HOME is not set; set SISKIN_PREFIX to the folder to install into'
        prefix=$HOME/.local
    fi
    case $prefix in
        /*) ;;
        *) prefix=$(pwd)/$prefix ;;
    esac
    [ ! -d "$prefix/bin/siskin" ] || fail "$prefix/bin/siskin is a folder"
    url=${SISKIN_URL:-https://github.com/siskin-ai/siskin/releases/download/v$version}
    for tool in tar gzip mktemp cut grep; do
        has "$tool" || fail "$tool is needed"
    done
    name=siskin-$version-linux-$(architecture)

    # Below the prefix, from where files are moved into place at once and programs can run.
    mkdir -p "$prefix" || fail "$prefix cannot be created; set SISKIN_PREFIX to a folder of yours"
    folder=$(mktemp -d "$prefix/.siskin-install.XXXXXX") || fail "$prefix cannot be written"
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 1' HUP INT TERM
    download "$url/SHA256SUMS" "$folder/SHA256SUMS"
    verify_signature
    expected=$(grep " $name.tar.gz\$" "$folder/SHA256SUMS" | cut -d ' ' -f 1)
    [ -n "$expected" ] || fail "$url/SHA256SUMS does not list $name.tar.gz"
    download "$url/$name.tar.gz" "$folder/$name.tar.gz"
    found=$(hash_of "$folder/$name.tar.gz")
    [ "$found" = "$expected" ] || fail "$name.tar.gz has the SHA-256 hash $found; $expected was expected"

    (cd "$folder" && gzip -dc "$name.tar.gz" | tar -xf -) || fail "$name.tar.gz cannot be unpacked"
    unpacked=$folder/$name
    printed=$("$unpacked/bin/siskin" --version) || fail "the program does not run here; is $prefix mounted with noexec?"
    [ "$printed" = "siskin $version" ] || fail "the program is \`$printed\`; \`siskin $version\` was expected"
    # The program comes last: with it, the installation is complete.
    (cd "$unpacked" && find share bin -type f) > "$folder/files"
    while read -r file; do
        mkdir -p "$(dirname "$prefix/$file")" || fail "$prefix/$file cannot be written"
        mv -f "$unpacked/$file" "$prefix/$file" || fail "$prefix/$file cannot be written"
    done < "$folder/files"

    echo "siskin $version is installed: $prefix/bin/siskin"
    case :${PATH:-}: in
        *":$prefix/bin:"*) ;;
        *) echo "Add it to the PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    echo 'Try: siskin run smollm2 "Why is the sky blue?"'
}

# The last line, so that a download that is cut off runs nothing.
main
