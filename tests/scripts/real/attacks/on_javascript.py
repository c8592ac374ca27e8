"""The attacks in JavaScript, by the names that they have in Python: the program that carries them out, one after the other
in one process. What is expected of them stands there."""

from __future__ import annotations

import re

JAVASCRIPT = r"""
import fs from "node:fs"; import os from "node:os"; import net from "node:net";
import dgram from "node:dgram"; import { spawn, spawnSync } from "node:child_process";

const sleep = (ms) => new Promise((go) => setTimeout(go, ms));
const read = (path) => fs.readFileSync(path, "utf8");
const write = (path) => { fs.writeFileSync(path, "// spoilt"); return "written"; };
const append = (path) => { fs.appendFileSync(path, "// spoilt"); return "written"; };
const say = (loot, error = "") => fs.writeSync(1, `ended ${JSON.stringify([[loot, error]])}\n`);
const tool = (...command) => {
  const found = spawnSync(command[0], command.slice(1));
  if (found.error) throw found.error;
  if (found.status) throw new Error(found.stderr.toString().trim());
  return "done";
};
const seen = (path) => { try { fs.lstatSync(path); return true; } catch { return false; } };
const pids = () => fs.readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name));
const attempts = (...all) => {
  const problems = [];
  const done = all.filter((each) => { try { each(); return true; } catch (problem) { problems.push(problem); } });
  if (!done.length) throw problems[0];
  return done.length;
};
const found = (paths, look) => paths.flatMap((path) => { try { return look(path); } catch { return []; } });
const connect = (address) => new Promise((go, fail) => {
  const connection = net.connect(address);
  connection.on("data", (data) => go(data.toString()));
  connection.on("error", fail);
  setTimeout(() => fail(new Error("no answer")), 10000).unref();
});
const outlive = (t, ...stdio) =>
  spawn(process.execPath, ["-e", "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)", t.token],
    { detached: true, stdio }).unref();
const flood = async (t) => {
  say("it writes");
  const piece = Buffer.alloc(1 << 20, 120);
  for (let at = 0; at < t.megabytes * piece.length;) {
    try { at += fs.writeSync(t.number, piece); } catch (problem) { if (problem.code !== "EAGAIN") throw problem; await sleep(1); }
  }
  process.exit(0);
};

const attacks = {
  reads_a_file_by_its_absolute_path: (t) => read(t.outside + "/secret.txt"),
  climbs_out_of_its_folder: (t) => read(`${t.script}/${t.climb}/secret.txt`),
  reads_through_a_link_that_lies_beside_it: (t) => read(t.script + "/link-to-secret.txt"),
  reads_through_a_link_that_it_makes_itself: (t) => {
    fs.symlinkSync(t.outside, t.output + "/made");
    return read(t.output + "/made/secret.txt");
  },
  makes_hard_links_to_files_of_the_host: (t) => {
    for (const name of ["secret.txt", "linked.txt"]) fs.linkSync(`${t.outside}/${name}`, `${t.output}/${name}`);
    write(t.output + "/linked.txt");
    return read(t.output + "/secret.txt");
  },
  makes_a_hard_link_to_what_lies_beside_it: (t) => {
    fs.linkSync(t.script + "/linked.txt", t.output + "/hard");
    return append(t.output + "/hard");
  },
  lists_a_folder_of_the_host: (t) => fs.readdirSync(t.outside),
  writes_to_a_file_by_its_absolute_path: (t) => write(t.outside + "/writable.txt"),
  writes_out_of_its_folders: (t) => write(t.output + "/../outside/climbed.txt"),
  writes_through_a_link_that_lies_beside_it: (t) => write(t.script + "/link-to-folder/through-a-link.txt"),
  overwrites_its_own_script: (t) => append(t.script + "/attack.mjs"),
  replaces_removes_and_opens_up_what_lies_beside_it: (t) => attempts(
    () => fs.renameSync(t.script + "/beside.txt", t.script + "/renamed.txt"),
    () => fs.mkdirSync(t.script + "/node_modules"),
    () => fs.symlinkSync("/etc", t.script + "/etc"),
    () => fs.chmodSync(t.script + "/removable.txt", 0o4777),
    () => fs.utimesSync(t.script + "/removable.txt", 1, 1),
    () => fs.truncateSync(t.script + "/removable.txt", 0),
    () => fs.unlinkSync(t.script + "/removable.txt"),
  ),
  leaves_a_link_for_the_next_run: (t) => {
    for (const folder of [t.output, t.cache]) {
      fs.symlinkSync(t.outside, folder + "/left");
      fs.symlinkSync(t.outside + "/writable.txt", folder + "/writable.txt");
    }
    return "planted";
  },
  writes_in_the_next_run_through_a_link_of_this_one: (t) => {
    if (t.round > 0) return write(t.cache + "/planted/in-the-next-run.txt");
    fs.symlinkSync(t.outside, t.cache + "/planted");
    return "planted";
  },
  leaves_something_where_every_later_script_would_find_it: (t) => {
    const paths = ["/tmp", "/dev/shm", "/var/tmp", "/run", t.more].map((place) => `${place}/${t.token}`);
    return found(paths.filter((path) => !t.round || seen(path)), (path) => t.round ? (fs.unlinkSync(path), path) : write(path));
  },
  writes_where_the_system_and_the_interpreter_are: (t) => attempts(...t.places.map((place) => () => {
    write(place + "/planted");
    fs.unlinkSync(place + "/planted");
  })),
  probes_which_folders_and_programs_the_host_has: (t) => [...t.places, t.outside].filter(seen),
  asks_whether_a_file_is_there_by_other_calls: (t) =>
    [fs.statSync, fs.readlinkSync, fs.statfsSync, fs.accessSync, fs.realpathSync, process.chdir].filter((ask) => {
      try { ask(t.outside + "/secret.txt"); return true; } catch (problem) { return problem.code !== "ENOENT"; }
    }),
  goes_through_every_root_and_working_folder_in_proc: (t) => found(
    [...pids(), "self"].flatMap((pid) => ["root", "cwd"].map((link) => `/proc/${pid}/${link}${t.outside}/secret.txt`)), read),
  opens_the_file_that_another_process_has_open: (t) => read(`/proc/${t.victim_pid}/fd/${t.victim_descriptor}`),
  finds_paths_of_the_host_in_its_table_of_mounts: (t) =>
    read("/proc/self/mountinfo").split("\n").filter((line) => line.includes(t.seen)),

  connects_to_a_server_on_the_hosts_own_loop: (t) => connect({ host: "127.0.0.1", port: t.tcp }),
  connects_to_a_server_by_the_hosts_address: (t) => connect({ host: t.host_address, port: t.tcp }),
  connects_by_ipv6: (t) => {
    if (!t.tcp6) throw new Error("AttributeError");
    return connect({ host: "::1", port: t.tcp6 });
  },
  sends_datagrams: (t) => new Promise((go, fail) => {
    const sender = dgram.createSocket("udp4");
    sender.on("message", (data) => go(data.toString()));
    sender.on("error", fail);
    sender.connect(t.udp, "127.0.0.1", (problem) => problem ? fail(problem) : sender.send("x"));
    if (t.inside) setTimeout(() => fail(Object.assign(new Error("no answer"), { code: "ECONNREFUSED" })), 500);
  }),
  connects_to_a_unix_socket_of_the_host: (t) => connect({ path: t.unix }),
  lists_the_networks_of_the_host: (t) => Object.keys(os.networkInterfaces()).filter((name) => name !== t.known),

  makes_a_user_namespace: () => tool("unshare", "--user", "--map-root-user", "true"),
  makes_any_other_namespace: () => attempts(
    ...["--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup"].map((kind) => () => tool("unshare", kind, "true"))),
  enters_the_namespaces_of_another_process: () => tool("nsenter", "--target", "1", "--net", "true"),
  mounts_a_file_system: () => tool("mount", "-t", "tmpfs", "none", "/tmp"),
  makes_what_is_read_only_writable_by_mounting_it_again: (t) => tool("mount", "-o", "remount,bind,rw", t.place),
  takes_a_mount_away_to_see_what_lies_beneath: (t) => attempts(...t.places.map((place) => () => tool("umount", "-l", place))),
  changes_its_root_folder: () => tool("/usr/sbin/chroot", "/", "true"),
  makes_a_device: (t) => {
    const path = `/tmp/device-js-${t.token}`;
    tool("mknod", path, ...(t.inside ? ["c", "1", "1"] : ["p"]));
    fs.unlinkSync(path);
    return "made";
  },
  becomes_another_user: () => { process.setuid(0); return "root"; },
  runs_a_program_that_would_run_as_its_owner: (t) => {
    const said = spawnSync(t.script + "/set-uid-id");
    if (said.error) throw said.error;
    return /uid=0/.test(said.stdout) ? said.stdout.toString() : null;
  },
  has_rights_of_root_left: () => {
    const status = Object.fromEntries(read("/proc/self/status").split("\n").map((line) => line.split(":\t")));
    const left = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"].filter((name) => BigInt("0x" + status[name]) !== 0n);
    if (status.NoNewPrivs.trim() !== "1") left.push("may get new ones");
    if (status.Seccomp.trim() !== "2") left.push("no filter");
    if (`${status.Uid} ${status.Gid} ${status.Groups}`.split(/\s+/).includes("0")) left.push("is root");
    return left;
  },
  writes_to_the_settings_of_the_kernel: (t) => attempts(...t.paths.map((path) => () => fs.closeSync(fs.openSync(path, "r+")))),
  reaches_the_control_groups: () => [
    ...found(["/sys/fs/cgroup"], fs.readdirSync), ...read("/proc/self/mountinfo").split("\n").filter((line) => line.includes(" - cgroup"))],
  protects_itself_from_the_end_when_memory_runs_out: (t) => {
    fs.writeFileSync("/proc/self/oom_score_adj", t.score);
    return "protected";
  },
  raises_its_limits: (t) =>
    tool("bash", "-c", t.beyond ? "ulimit -H -u 100000 && ulimit -H -n 1000000" : "ulimit -n 100"),
  sees_the_name_of_the_host: (t) => t.own.includes(os.hostname()) ? null : os.hostname(),

  reads_its_environment_for_secrets: (t) => Object.values(process.env).filter((value) => value.includes(t.needle)),
  reads_environment_and_arguments_of_every_process: (t) => found(
    [...pids(), t.victim_pid, process.ppid, 1, 2].flatMap((pid) => [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`]),
    (path) => read(path).split("\0").filter((text) => text.includes(t.needle))),
  takes_the_pids_of_the_host_from_proc: (t) => pids().filter((pid) => Number(pid) > t.above),
  opens_the_memory_of_a_process_of_the_host: (t) => {
    const memory = fs.openSync(`/proc/${t.victim_pid}/mem`, "r"), held = Buffer.alloc(38);
    fs.readSync(memory, held, 0, 38, t.victim_address);
    return held.toString();
  },
  reads_from_what_it_inherits: (t) => {
    const said = spawnSync("ls", ["-l", "/proc/self/fd"], { stdio: ["ignore", "pipe", "ignore", "inherit"] });
    const links = said.stdout.toString().split("\n").map((line) => line.split(" -> ")[1] ?? "");
    const held = found([...Array(200).keys()].slice(3), (number) => {
      const data = Buffer.alloc(100);
      return fs.readSync(number, data, 0, 100, 0) && data.includes(t.needle) ? data.toString("utf8", 0, 38) : [];
    });
    return [...held, ...links.filter((link) => link && !/^(\/dev\/null|\/proc|pipe:|anon_inode:|socket:)/.test(link))];
  },
  opens_the_terminal_that_the_host_was_started_from: () => fs.openSync("/dev/tty", "r+") > 2,
  changes_limits_and_priority_of_a_process_of_the_host: (t) => { os.setPriority(t.victim_pid, 19); return "changed"; },
  stops_a_process_of_the_host_by_its_descriptor: (t) => { process.kill(t.victim_pid, "SIGSTOP"); return "sent"; },
  ends_a_process_of_the_host: (t) => { process.kill(t.victim_pid, "SIGKILL"); return "sent"; },

  leaves_a_process_behind_that_ignores_all_signals: async (t) => { outlive(t, "ignore"); await sleep(200); return "left"; },
  leaves_a_process_behind_that_holds_its_outputs_open: async (t) => {
    outlive(t, "ignore", "inherit", "inherit");
    await sleep(200);
    return "left";
  },
  ignores_every_signal_and_outlives_its_time_with_children: async (t) => {
    for (const name of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(name, () => {});
    outlive(t, "ignore");
    await sleep(200);
    say("it goes on");
    while (t.is_endless) await sleep(100);
    process.exit(0);
  },
  closes_its_outputs_and_goes_on: async (t) => {
    say("it goes on");
    for (const number of [1, 2]) fs.closeSync(number);
    while (t.is_endless) await sleep(100);
    process.exit(0);
  },
  stops_itself_so_that_nothing_of_it_ends: (t) => {
    say("it stops");
    while (t.is_endless) process.kill(0, "SIGSTOP");
    process.exit(0);
  },

  is_busy: (t) => {
    write(t.output + "/result.txt");
    spawn("sleep", ["100"], { detached: true, stdio: "ignore" }).unref();
    return "done";
  },
  takes_memory_in_one_process: (t) =>
    Array.from({ length: t.megabytes / 8 }, (_, number) => Buffer.alloc(8 << 20, number + 1)).length,
  takes_memory_in_its_heap_of_objects: (t) =>
    Array.from({ length: t.megabytes }, () => Array.from({ length: 1 << 17 }, (_, at) => at + 0.5)).length,
  takes_memory_of_the_kernel_in_the_tables_of_pages: async (t) => {
    const code = "import mmap, sys\nsize = int(sys.argv[1]) << 30\n" +
      "held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)\n" +
      "for at in range(0, size, 2 << 20): held[at]";
    tool("python3", "-c", code, String(t.gigabytes), t.token);
    if (t.inside) await sleep(100_000);
    return `${t.gigabytes * 2} MB`;
  },
  writes_one_file_that_is_too_large: (t) => {
    fs.writeFileSync(t.output + "/large", "");
    fs.truncateSync(t.output + "/large", t.megabytes << 20);
    fs.rmSync(t.output + "/large");
    return "written";
  },
  makes_empty_files_until_the_kernels_memory_runs_out: (t) => {
    for (let number = 0; number < t.count; number++) fs.writeFileSync(`${t.where}/${number}-${t.token}`, "");
    for (let number = 0; number < t.count; number++) fs.rmSync(`${t.where}/${number}-${t.token}`);
    return t.count;
  },
  writes_without_end_to_stdout: flood,
  writes_without_end_to_stderr: flood,
  leaves_the_memory_of_a_crash_behind: (t) => {
    process.chdir(t.output);
    say("it crashes");
    if (t.crashes) process.abort();
    process.exit(0);
  },
};

const common = JSON.parse(fs.readFileSync(0, "utf8").split("\n")[0]);
if (common.degraded) {
  common.output = process.env.TAVERN_OUTPUT;
  common.cache = common.output + "/cache";
  fs.mkdirSync(common.cache, { recursive: true });
}
fs.writeSync(1, `began ${common.token} ${fs.readlinkSync("/proc/self/ns/pid")}\n`);
const isShared = common.guarded && process.geteuid() === 0 && fs.readlinkSync("/proc/self/ns/mnt") === common.mounts;
const verdicts = [];
for (const name of common.names) {
  try {
    const loot = isShared ? "SHARED" : (await attacks[name]({ ...common, ...common.of[name] })) ?? null;
    verdicts.push([loot, !loot || loot.length === 0 ? "nothing" : ""]);
  } catch (problem) {
    verdicts.push([null, problem.code ?? String(problem)]);
  }
}
fs.writeSync(1, `ended ${JSON.stringify(verdicts)}\n`);
process.exit(0);
"""
NAMES = re.findall(r"^  (\w+_\w+): ", JAVASCRIPT, re.MULTILINE)
