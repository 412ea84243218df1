package doctor

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/echomq/emq/lua"
)

// floors are the first releases of a line without known flaws in their Lua engine that whoever may send a script could use, and which
// flaws those before have.
var floors = []struct {
	name         string
	major, minor int
	patch        int
	flaws        string
}{
	{"Valkey", 7, 2, 12, "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819, CVE-2025-67733"},
	{"Valkey", 8, 0, 7, "CVE-2024-46981, CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819, CVE-2025-67733"},
	{"Valkey", 8, 1, 6, "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819, CVE-2025-67733"},
	{"Valkey", 9, 0, 2, "CVE-2025-67733"},
	{"Redis", 7, 0, 1000, "no further releases; CVE-2025-49844 among others"},
	{"Redis", 7, 2, 11, "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819"},
	{"Redis", 7, 4, 6, "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819"},
}

// Thresholds.
const (
	memoryHigh  = 0.80
	memoryFull  = 0.95
	clientsHigh = 0.80
	clockApart  = time.Second
)

// server looks at each node.
func (d *Doctor) server(ctx context.Context) error {
	for address, node := range d.Client.Nodes() {
		text, err := node.Do(ctx, node.B().Info().Build()).ToString()
		if err != nil && !answered(err) {
			return err
		}
		if err != nil {
			d.add("server", Unseen, "", "grant +info to the user who runs this", "%s does not tell about itself: %v", address, err)
			continue
		}
		d.info(address, fields(text))
	}
	if err := d.clock(ctx); err != nil {
		return err
	}
	if err := d.cluster(ctx); err != nil {
		return err
	}
	return d.scripts(ctx)
}

func fields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

func (d *Doctor) info(address string, f map[string]string) {
	d.version(address, f)
	if f["role"] == "slave" {
		d.add("role", Wrong, "", "connect to the primary; behind Sentinel or in a cluster the client finds it", "%s is a replica: nothing can be enqueued or claimed there", address)
	} else {
		d.add("role", OK, "", "", "%s is a primary", address)
	}
	switch policy := f["maxmemory_policy"]; policy {
	case "":
		d.add("eviction", Unseen, "", "", "%s does not tell its maxmemory-policy", address)
	case "noeviction":
		d.add("eviction", OK, "", "", "%s evicts no keys", address)
	default:
		d.add("eviction", Wrong, "", "CONFIG SET maxmemory-policy noeviction", "%s has maxmemory-policy %s, which evicts limiters and leases first", address, policy)
	}
	switch {
	case f["aof_enabled"] == "":
		d.add("persistence", Unseen, "", "", "%s does not tell whether it keeps an append-only file", address)
	case f["aof_enabled"] == "0":
		d.add("persistence", Warning, "", "CONFIG SET appendonly yes", "%s keeps no append-only file: a restart loses every job since the last snapshot, and every counter", address)
	case f["aof_last_write_status"] != "ok" && f["aof_last_write_status"] != "":
		d.add("persistence", Wrong, "", "look at the server's log and at its disk", "%s could not write its append-only file", address)
	default:
		d.add("persistence", OK, "", "", "%s keeps an append-only file", address)
	}
	used, most := number(f["used_memory"]), number(f["maxmemory"])
	switch share := used / max(most, 1); {
	case most > 0 && share > memoryFull:
		d.add("memory", Wrong, "", "raise maxmemory, or let workers drain", "%s uses %.0f %% of its maxmemory: enqueues are about to be refused, or are", address, 100*share)
	case most > 0 && share > memoryHigh:
		d.add("memory", Warning, "", "raise maxmemory", "%s uses %.0f %% of its maxmemory", address, 100*share)
	default:
		d.add("memory", OK, "", "", "%s has room", address)
	}
	if clients, most := number(f["connected_clients"]), number(f["maxclients"]); most > 0 && clients/most > clientsHigh {
		d.add("clients", Warning, "", "raise maxclients, or find who keeps connections open: CLIENT LIST", "%s has %.0f of at most %.0f clients", address, clients, most)
	}
	if f["loading"] == "1" {
		d.add("loading", Warning, "", "wait", "%s is still loading its data", address)
	}
}

func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}

func (d *Doctor) version(address string, f map[string]string) {
	name, version := "Valkey", f["valkey_version"]
	if version == "" {
		name, version = "Redis", f["redis_version"]
	}
	part := strings.Split(version+".0.0", ".")
	major, minor, patch := int(number(part[0])), int(number(part[1])), int(number(part[2]))
	switch {
	case version == "":
		d.add("version", Unseen, "", "", "%s does not tell its version", address)
		return
	case f["multi_master"] == "1", f["server_name"] == "keydb":
		d.add("version", Wrong, "", "use Valkey with one primary that writes", "%s is a KeyDB: with several primaries counts are lost", address)
		return
	case name == "Valkey" && (major < 7 || major == 7 && minor < 2), name == "Redis" && major < 7:
		d.add("version", Wrong, "", "update to Valkey 7.2 or later, or Redis 7.0 or later", "%s is %s %s, which lacks what the scripts need", address, name, version)
		return
	}
	for _, floor := range floors {
		if floor.name == name && floor.major == major && floor.minor == minor && patch < floor.patch {
			do := "update to the latest release of this line"
			if floor.patch < 1000 {
				do = "update to " + name + " " + strings.Join([]string{part[0], part[1], strconv.Itoa(floor.patch)}, ".") + " or later"
			}
			d.add("version", Warning, "", do, "%s is %s %s, whose Lua engine has known flaws: %s", address, name, version, floor.flaws)
			return
		}
	}
	d.add("version", OK, "", "", "%s is %s %s", address, name, version)
}

// clock compares the server's clock with the one of this machine.
func (d *Doctor) clock(ctx context.Context) error {
	before := time.Now()
	answer, err := d.Client.Do(ctx, d.Client.B().Time().Build()).AsStrSlice()
	took := time.Since(before)
	if err != nil && !answered(err) {
		return err
	}
	if err != nil || len(answer) != 2 {
		d.add("clock", Unseen, "", "grant +time", "the server does not tell the time: %v", err)
		return nil
	}
	s, _ := strconv.ParseInt(answer[0], 10, 64)
	us, _ := strconv.ParseInt(answer[1], 10, 64)
	apart := time.Unix(s, us*1000).Sub(before.Add(took / 2))
	if apart.Abs() > clockApart+took {
		d.add("clock", Warning, "", "let both follow a time server; limits, delays and leases go by the server's clock", "the server's clock and this machine's are %v apart", apart.Round(time.Millisecond))
		return nil
	}
	d.add("clock", OK, "", "", "the server's clock and this machine's agree")
	return nil
}

// cluster looks whether all slots are served.
func (d *Doctor) cluster(ctx context.Context) error {
	if len(d.Client.Nodes()) < 2 {
		return nil
	}
	text, err := d.Client.Do(ctx, d.Client.B().ClusterInfo().Build()).ToString()
	if err != nil && !answered(err) {
		return err
	}
	f := fields(text)
	switch {
	case err != nil:
		d.add("cluster", Unseen, "", "grant +cluster|info", "the cluster does not tell about itself: %v", err)
	case f["cluster_state"] != "ok" || f["cluster_slots_ok"] != "16384":
		d.add("cluster", Wrong, "", "valkey-cli --cluster check", "state %s, %s of 16384 slots are served", f["cluster_state"], f["cluster_slots_ok"])
	default:
		d.add("cluster", OK, "", "", "all slots are served by %s masters", f["cluster_size"])
	}
	return nil
}

// scripts looks whether the server has the scripts of this version, which each process sends by itself where they are missing.
func (d *Doctor) scripts(ctx context.Context) error {
	known := 0
	var sums []string
	for _, name := range lua.Names() {
		sums = append(sums, lua.Sum(name))
	}
	for _, node := range d.Client.Nodes() {
		found, err := node.Do(ctx, node.B().ScriptExists().Sha1(sums...).Build()).AsIntSlice()
		if err != nil && !answered(err) {
			return err
		}
		if err != nil {
			d.add("scripts", Unseen, "", "", "the server does not tell which scripts it knows")
			return nil
		}
		for _, one := range found {
			known += int(one)
		}
	}
	d.add("scripts", OK, "", "", "%d of the %d scripts of this version are known to the server; the others are sent when they are needed", known/max(1, len(d.Client.Nodes())), len(sums))
	return nil
}
