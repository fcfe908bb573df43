package kafka_test

import (
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/fleettest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Partitions are added while the coordinator of the group is away. When it is back, every feed has an
// owner on which all copies agree within seconds, whatever the number of partitions is.
func TestFleetAfterAnOutageInWhichPartitionsWereAdded(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, 30 * time.Second, 70 * time.Second} {
		t.Run(outage.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
				must.Succeed(t, v.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}))
				copies, _ := v.joinAll(t)
				for _, c := range copies {
					if n := len(c.Owned()); n < 80 || n > 110 {
						t.Errorf("%s has %d of 300 feeds before the outage", c.Name, n)
					}
				}
				admin := v.admin(t) // has a network of its own
				go v.stopFor(outage)
				time.Sleep(outage / 2)
				if _, err := admin.CreatePartitions(t.Context(), 59, checkpoints); err != nil {
					t.Fatal(err)
				}
				time.Sleep(outage - outage/2)
				fleettest.Within(t, 15*time.Second, copies...)
			})
		})
	}
}
