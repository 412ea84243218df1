package lua_test

import (
	"fmt"
	"strconv"

	"github.com/echomq/emq/lua"
)

// Where queues lie in a cluster of three masters that share the slots evenly.
func ExampleSlot() {
	var queues [3]int
	for i := range 12 {
		name := "mail-" + strconv.Itoa(i)
		queues[lua.Slot(name)*3/lua.Slots]++
	}
	fmt.Println("queues of each master:", queues)
	fmt.Println("all keys of a queue:", lua.Slot("mail-0") == lua.Slot("emq:{mail-0}:meta"))
	// Output:
	// queues of each master: [4 4 4]
	// all keys of a queue: true
}

// All jobs of a tenant are in one of twelve queues.
func ExampleSlot_tenants() {
	for _, tenant := range []string{"acme", "globex", "initech"} {
		fmt.Println(tenant, queueOf(tenant))
	}
	// Output:
	// acme mail-0
	// globex mail-1
	// initech mail-9
}

func queueOf(tenant string) string { return "mail-" + strconv.Itoa(lua.Slot(tenant)%12) }
