#!/usr/bin/env -S python3 -IB
"""What Google's guest environment and cloud-init do on a new machine, run by its init before sshd starts.

Host keys go to the guest attributes, ssh-keys metadata become users with sudo, user-data (#cloud-config or
#!) is carried out where the image has cloud-init, and startup-script is run. Standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
GUEST = json.loads(base64.b64decode("@GUEST@"))  # cloud_init, root_login, hostkey_s, …
USERS = "/var/lib/google/google_users"
ROOT = "http://169.254.169.254/computeMetadata/v1/"
_SU = "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\nsession required pam_permit.so\n"
_SUDO = """#!/bin/sh
# sudo of a machine on whose base system there is none: for everybody who can log in, without a password.
while [ $# -gt 0 ]; do
    case $1 in
    -u | -g | -p) shift 2 ;;
    --) shift; break ;;
    -*) shift ;;
    *=*) export "$1"; shift ;;
    *) break ;;
    esac
done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ $# -gt 0 ] || exec su root
[ "$(id -u)" != 0 ] || exec "$@"
exec su -s /bin/sh -c 'export HOME=/root; exec "$@"' -- root sh "$@"
"""
_SYSTEMCTL = """#!/bin/sh
# As much of systemctl as there is to control: sshd.
for unit in "$@"; do :; done
case "$1 $unit" in
"restart ssh"* | "reload ssh"* | "try-restart ssh"* | "reload-or-restart ssh"* | "try-reload-or-restart ssh"*)
    kill -s HUP "$(cat /run/sshd.pid)" ;;
"daemon-reload "* | "enable "* | "disable "* | "mask "* | "stop "*) ;;
poweroff* | "halt "* | reboot*) exec "$1" ;;
*) echo "systemctl: $*: there is no systemd on this machine" >&2; exit 1 ;;
esac
"""


def metadata(path: str, default: str = "", **query: str) -> str:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    request = urllib.request.Request(f"{ROOT}{path}?{text}", headers={"Metadata-Flavor": "Google"})
    try:
        with _opener.open(request, timeout=300) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError:
        return default


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def await_metadata_server() -> None:
    while True:
        try:
            socket.create_connection(("169.254.169.254", 80), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)


def write(path: str, text: str, mode: int = 0o644) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    Path(path).chmod(mode)


def prepare_image() -> None:
    """What the image itself would hold."""
    Path("/root/.ssh/authorized_keys").unlink(missing_ok=True)
    config = Path("/etc/ssh/sshd_config")
    allowed = "prohibit-password" if GUEST["root_login"] else "no"
    config.write_text(re.sub(r"(?m)^PermitRootLogin .*$", f"PermitRootLogin {allowed}", config.read_text()))
    with open("/etc/hosts", "a") as hosts:
        hosts.write("169.254.169.254 metadata.google.internal metadata\n")
    if Path("/usr/bin/sudo").exists():
        write("/etc/sudoers.d/google_sudoers", "%google-sudoers ALL=(ALL:ALL) NOPASSWD:ALL\n", 0o440)
    else:
        write("/usr/bin/sudo", _SUDO, 0o755)
        write("/etc/pam.d/su", _SU)
    write("/usr/local/bin/systemctl", _SYSTEMCTL, 0o755)
    if GUEST["nvidia_smi"]:
        write("/usr/bin/nvidia-smi", GUEST["nvidia_smi"], 0o755)


def note_instance() -> None:
    """As Google's agent and its boto.cfg know the machine from then on."""
    write("/etc/google_instance_id", metadata("instance/id") + "\n")
    write("/etc/boto.cfg", "[GSUtil]\ndefault_project_id = " + metadata("project/numeric-project-id") + "\n")


def publish_host_keys() -> None:
    time.sleep(GUEST["hostkey_s"])
    lines = [path.read_text().strip() for path in sorted(Path("/etc/ssh").glob("ssh_host_*_key.pub"))]
    keys = [line for line in lines if line]
    if GUEST["cloud_init"]:
        print(
            "-----BEGIN SSH HOST KEY KEYS-----",
            *keys,
            "-----END SSH HOST KEY KEYS-----",
            sep="\n",
            flush=True,
        )
    for key in keys:
        kind, value = key.split()[:2]
        request = urllib.request.Request(
            f"{ROOT}instance/guest-attributes/hostkeys/{kind}",
            data=value.encode(),
            method="PUT",
            headers={"Metadata-Flavor": "Google"},
        )
        try:
            _opener.open(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            print(f"google-guest-agent: host keys not published: {error}", flush=True)


# ------------------------------------------------------------ users


def grant_keys() -> None:
    """Users and their authorized_keys as the metadata have them now."""
    if metadata("instance/attributes/enable-oslogin").lower() == "true":
        grant_profiles()
        return
    keys: dict[str, list[str]] = {}
    for line in metadata("instance/attributes/ssh-keys").splitlines():
        user, colon, key = line.strip().partition(":")
        if colon and re.fullmatch(r"[a-z_][a-z0-9_.-]{0,31}", user):
            keys.setdefault(user, []).append(key)
    for user, lines in keys.items():
        make_user(user)
        authorize(user, lines)
    for user in known_users() - set(keys):
        authorize(user, [])
    write(USERS, "\n".join(keys) + "\n")


def grant_profiles() -> None:
    """As OS Login has them: those whose keys have not expired; an admin may use sudo."""
    told = json.loads(metadata("oslogin/users", '{"users": [], "admin": false}'))
    for profile in told["users"]:
        account, now = profile["posixAccounts"][0], time.time() * 1e6
        kept = profile["sshPublicKeys"].values()
        keys = [
            each["key"]
            for each in kept
            if each["expirationTimeUsec"] == "0" or int(each["expirationTimeUsec"]) > now
        ]
        if keys:
            make_user(account["username"], sudo=told["admin"])
            authorize(account["username"], keys)


def known_users() -> set[str]:
    path = Path(USERS)
    return set(path.read_text().split()) if path.exists() else set()


def make_user(name: str, *, sudo: bool = True) -> None:
    try:
        pwd.getpwnam(name)
        return
    except KeyError:
        pass
    number = max([1000, *(user.pw_uid for user in pwd.getpwall() if 1000 <= user.pw_uid < 60000)]) + 1
    for path, line in {
        "/etc/passwd": f"{name}:x:{number}:{number}::/home/{name}:/bin/bash",
        "/etc/shadow": f"{name}:*:19000:0:99999:7:::",
        "/etc/group": f"{name}:x:{number}:" + (f"\ngoogle-sudoers:x:{number + 10000}:{name}" if sudo else ""),
    }.items():
        with open(path, "a") as file:
            file.write(line + "\n")
    Path(f"/home/{name}").mkdir(parents=True, exist_ok=True)
    Path(f"/home/{name}").chmod(0o755)
    os.chown(f"/home/{name}", number, number)


def authorize(name: str, keys: list[str]) -> None:
    user = pwd.getpwnam(name)
    folder = Path(user.pw_dir, ".ssh")
    folder.mkdir(mode=0o700, exist_ok=True)
    write(str(folder / "authorized_keys"), "".join(f"# Added by Google\n{key}\n" for key in keys), 0o600)
    for path in (folder, folder / "authorized_keys"):
        os.chown(path, user.pw_uid, user.pw_gid)


# ------------------------------------------------------------ cloud-init


def cloud_config(text: str) -> Json:
    """The part of #cloud-config that is understood here; json is yaml, and yaml needs its package."""
    body = text.partition("\n")[2]
    try:
        found: Json = json.loads(body)
        return found
    except ValueError:
        return _from_yaml(body)


def _from_yaml(body: str) -> Json:
    found: Json | None = GUEST["cloud_config"]  # read by the cloud, which has a parser
    if found is None:
        raise ValueError("the user-data are no YAML: " + body[:80])
    return found


def write_files(config: Json) -> None:
    for file in config.get("write_files", []):
        content = file.get("content", "")
        raw = base64.b64decode(content) if file.get("encoding") in ("b64", "base64") else content.encode()
        path = Path(file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if file.get("append") else "wb") as out:
            out.write(raw)
        path.chmod(int(str(file.get("permissions", "0644")), 8))
        owner, _, group = file.get("owner", "root:root").partition(":")
        subprocess.run(["chown", f"{owner}:{group}", str(path)], check=False)


def add_users(config: Json) -> None:
    keys = config.get("ssh_authorized_keys", [])
    if keys:
        make_user("ubuntu")
        authorize("ubuntu", keys)
        banner = (
            'no-port-forwarding,command="echo Please login as the user ubuntu rather than root.;exit 142"'
        )
        if config.get("disable_root", True):
            keys = [f"{banner} {key}" for key in keys]
        authorize("root", keys)
    for user in config.get("users", []):
        if isinstance(user, dict):
            make_user(user["name"])
            authorize(user["name"], user.get("ssh_authorized_keys", []))


def host_keys(config: Json) -> None:
    for name, text in config.get("ssh_keys", {}).items():
        kind, _, which = name.partition("_")
        path = f"/etc/ssh/ssh_host_{kind}_key"
        write(
            path + (".pub" if which == "public" else ""),
            text.rstrip("\n") + "\n",
            0o644 if which == "public" else 0o600,
        )


def run_commands(config: Json) -> None:
    for command in [*config.get("bootcmd", []), *config.get("runcmd", [])]:
        arguments = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        subprocess.run(arguments, stdin=subprocess.DEVNULL, check=False)


# ------------------------------------------------------------ scripts


def run_script(kind: str, text: str) -> None:
    path = f"/var/lib/google/{kind}"
    write(path, text, 0o700)
    print(f"google_metadata_script_runner: Found {kind} in metadata.", flush=True)
    command = [path] if text.startswith("#!") else ["/bin/bash", path]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False, cwd="/")
    print(f"google_metadata_script_runner: {kind} exit status {ended.returncode}", flush=True)


def in_background(work: Callable[[], None]) -> None:
    """So that sshd does not wait for it: the machine's init starts that once this script has ended."""
    sys.stdout.flush()
    if os.fork() == 0:
        os.setsid()
        os.chdir("/")
        try:
            work()
        finally:
            sys.stdout.flush()
            os._exit(0)


def final_stage(config: Json, script: str) -> None:
    run_commands(config)
    if script:
        run_script("user-data", script)
    time.sleep(GUEST["startup_s"])
    startup = metadata("instance/attributes/startup-script")
    if startup:
        run_script("startup-script", startup)


def watch() -> None:
    """Follow the metadata: keys may be added while the machine runs. The first answer comes at once."""
    time.sleep(GUEST["login_s"])
    etag = "0"
    while True:
        request = urllib.request.Request(
            f"{ROOT}instance/attributes/?recursive=true&wait_for_change=true&timeout_sec=120&last_etag={etag}",
            headers={"Metadata-Flavor": "Google"},
        )
        try:
            with _opener.open(request, timeout=150) as answer:
                answer.read()
                etag = answer.headers["ETag"]
            grant_keys()
        except OSError:
            time.sleep(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    await_metadata_server()  # until then its disk is not whole
    prepare_image()
    note_instance()
    config: Json = {}
    script = ""
    user_data = metadata("instance/attributes/user-data") if GUEST["cloud_init"] else ""
    if user_data.startswith("#cloud-config"):
        config = cloud_config(user_data)
        host_keys(config)
        write_files(config)
        add_users(config)
    elif user_data.startswith("#!"):
        script = user_data
    if not GUEST["login_s"]:
        grant_keys()
    in_background(publish_host_keys)
    in_background(lambda: final_stage(config, script))
    in_background(watch)


main()
