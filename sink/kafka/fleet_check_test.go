package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

func checkFleet(t *testing.T, cfg kafka.Config, create bool) (int, error) {
	t.Helper()
	return connect(t, cfg).Fleet(kafka.FleetOptions{Name: "shop", Create: create, Replication: 1}).Check(t.Context())
}

func TestCheckOfAFleetChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		_, adm := admin(t, c)
		if n, err := checkFleet(t, configFor(c), true); err != nil || n != 0 {
			t.Fatalf("%d members, error %v; want 0 of a fleet that has never run", n, err)
		}
		if topics, err := adm.ListTopics(t.Context()); err != nil || topics.Has(checkpoints) {
			t.Errorf("the checkpoint topic was created, or error %v", err)
		}
		if groups, err := adm.ListGroups(t.Context()); err != nil || len(groups) > 0 {
			t.Errorf("groups %v, error %v", groups.Groups(), err)
		}
		a, b := joinOn(t, connect(t, configFor(c)), "a", silent), joinOn(t, connect(t, configFor(c)), "b", silent)
		until(t, func() bool { return len(a.Assignment().Members) == 2 && len(b.Assignment().Members) == 2 })
		before := len(a.Owned())
		if n, err := checkFleet(t, configFor(c), true); err != nil || n != 2 {
			t.Errorf("%d members, error %v; want 2", n, err)
		}
		groups, err := adm.DescribeGroups(t.Context(), group)
		if err != nil || groups[group].State != "Stable" || len(groups[group].Members) != 2 || len(a.Owned()) != before {
			t.Errorf("the group is %+v, error %v", groups[group], err)
		}
	})
}

func TestCheckOfAFleetFindsWhatRunNeeds(t *testing.T) {
	t.Parallel()
	right := func(op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: group, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	for name, test := range map[string]struct {
		acls    []kfake.ACL
		create  bool
		another bool // another program uses the group
		want    []string
	}{
		"all rights":         {[]kfake.ACL{right(kmsg.ACLOperationRead)}, true, false, nil},
		"no right":           {nil, true, false, []string{`this user may not use the consumer group "feedbridge.shop"`, "--operation Read --group feedbridge.shop'"}},
		"only to see it":     {[]kfake.ACL{right(kmsg.ACLOperationDescribe)}, true, false, []string{"--operation Read --group feedbridge.shop'"}},
		"no topic":           {[]kfake.ACL{right(kmsg.ACLOperationRead)}, false, false, []string{"there is no topic feedbridge.checkpoints, and create is off"}},
		"of another program": {[]kfake.ACL{right(kmsg.ACLOperationRead)}, true, true, []string{`another program uses the consumer group "feedbridge.shop"`, "choose another fleet.name"}},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "fb", "right", append(rights(), test.acls...)...))
			cfg := configFor(c)
			root := cfg
			root.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "root", Password: "root"}
			if test.another {
				other(t, c)
			} else if test.create {
				// kfake checks no rights to a group that does not exist; Kafka does.
				a := joinOn(t, connect(t, root), "a", silent)
				until(t, func() bool { return len(a.Assignment().Members) == 1 })
			}
			cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "fb", Password: "right"}
			_, err := checkFleet(t, cfg, test.create)
			if test.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, true, nil, test.want...)
		}))
	}
}

// other is a program that uses the group of the fleet in its own way.
func other(t *testing.T, c *kfake.Cluster) {
	t.Helper()
	must.Succeed(t, c.CreateTopic("other", 1, nil))
	cl := newClient(t, c.ListenAddrs(), kgo.SASL(plain.Auth{User: "root", Pass: "root"}.AsMechanism()), kgo.ConsumerGroup(group), kgo.ConsumeTopics("other"), kgo.Balancers(kgo.RangeBalancer()))
	until(t, func() bool {
		groups, err := kadm.NewClient(cl).DescribeGroups(t.Context(), group)
		return err == nil && groups[group].State == "Stable" && len(groups[group].Members) == 1
	})
}
