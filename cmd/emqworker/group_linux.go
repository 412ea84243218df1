package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownGroup gives cmd a process group of its own. It ends with the thread that starts it, so with this process however that ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupAlive: a process of the group runs. Those that are over do not count, though an init that is slow to ask for them, or
// absent as in many containers, keeps them in the group.
func groupAlive(leader *os.Process) bool {
	if syscall.Kill(-leader.Pid, 0) != nil {
		return false
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	group := []byte(strconv.Itoa(leader.Pid))
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		// pid (name) state parent group …; the name may hold anything
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 2 && bytes.Equal(fields[2], group) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return true
		}
	}
	return len(stats) == 0 // without /proc: as the signal says
}
