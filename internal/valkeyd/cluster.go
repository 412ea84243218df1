package valkeyd

import (
	"fmt"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

// ServerCluster is a cluster started by [StartCluster].
type ServerCluster struct{ Masters []*Server }

// StartCluster starts a cluster of n masters that share all slots, and returns when each of them knows that. It fails as
// [Start] does.
func StartCluster(n int) (*ServerCluster, error) {
	c := &ServerCluster{}
	for i := range n {
		s, err := prepare(Options{Cluster: true, Args: []string{"--cluster-require-full-coverage", "no"}})
		if err == nil {
			s.slots = fmt.Sprintf("%d %d", 16384*i/n, 16384*(i+1)/n-1)
			err = s.start()
		}
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.Masters = append(c.Masters, s)
	}
	first := c.Masters[0]
	for _, s := range c.Masters[1:] {
		if _, err := s.ask(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", first.port, first.busPort)); err != nil {
			c.Stop()
			return nil, err
		}
	}
	for begun := time.Now(); ; time.Sleep(pollEvery) {
		if c.complete() {
			return c, nil
		}
		if time.Since(begun) > readyWithin {
			c.Stop()
			return nil, fmt.Errorf("valkeyd: the masters did not form a cluster within %v", readyWithin)
		}
	}
}

func (c *ServerCluster) complete() bool {
	for _, s := range c.Masters {
		info, err := s.ask("CLUSTER INFO")
		if err != nil || !strings.Contains(info, "cluster_slots_assigned:16384\r") || !strings.Contains(info, "cluster_state:ok") {
			return false
		}
	}
	return true
}

// Options returns what [valkey.NewClient] needs to reach the cluster.
func (c *ServerCluster) Options() valkey.ClientOption {
	options := c.Masters[0].Options()
	options.InitAddress = nil
	for _, s := range c.Masters {
		options.InitAddress = append(options.InitAddress, s.Options().InitAddress...)
	}
	options.ForceSingleClient = false
	return options
}

// Stop ends the masters.
func (c *ServerCluster) Stop() {
	for _, s := range c.Masters {
		s.Stop()
	}
}
