package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// The time limits of a group. The brokers must allow the session timeout, which they do by
// default (group.min.session.timeout.ms is 6000).
const (
	// sessionTimeout is after how long the group removes a member that is silent.
	sessionTimeout = 10 * time.Second
	// heartbeatInterval bounds how late a member learns of a change.
	heartbeatInterval = 500 * time.Millisecond
	// rebalanceTimeout is how long the group waits for a member to join again.
	rebalanceTimeout = 10 * time.Second
	// leaveTimeout bounds how long Join takes to leave. If it does not succeed, the session
	// times out.
	leaveTimeout = 3 * time.Second
	// noteInterval is the shortest time between two generations of the group that are made for notes. In
	// each of them the notes of all members are renewed, so this holds for any number of members.
	noteInterval = 30 * time.Second
	// maxDescribe is the longest wait between two attempts to read the members.
	maxDescribe = 2 * time.Second
)

// FleetOptions describe the consumer group of a fleet.
type FleetOptions struct {
	// Name is the name of the fleet; its consumer group is "feedbridge.<Name>".
	Name string
	// Create and Replication are for the checkpoint topic, as in [Options].
	Create      bool
	Replication int
}

// Fleet is the [fleet.Bus] of a fleet. The members are those of a consumer group, with their values
// as user data. The group assigns no partitions; it is on the checkpoint topic only because a group needs
// a topic. So the number of its partitions does not matter. A member reads no records and commits
// no offsets.
type Fleet struct {
	client  *client
	topic   *checkpointTopic
	options FleetOptions
	group   string
}

// Fleet returns the bus of a fleet. It makes no request; [Fleet.Join] does.
func (c *Conn) Fleet(o FleetOptions) *Fleet {
	return &Fleet{client: c.client, topic: c.checkpoints, options: o, group: "feedbridge." + o.Name}
}

// Join implements [fleet.Bus]. It creates the checkpoint topic if that is missing and may be created.
// While no broker can be reached, and after the group has removed this copy, it tries again by itself.
// It returns within 4 s after ctx has ended.
func (f *Fleet) Join(ctx context.Context, self fleet.Self, report func(fleet.Report)) error {
	if _, err := f.topic.describeTopic(ctx, f.options.Replication, f.options.Create); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return f.explainError(ctx, err)
	}
	// The group is left after ctx has ended.
	lifetime, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s := &groupSession{ctx: ctx, bus: f, failed: make(chan error, 1), generation: make(chan struct{}, 1)}
	group, err := kgo.NewClient(append(slices.Clone(f.client.opts), f.groupOptions(lifetime, self, s)...)...)
	if err != nil {
		return feed.Permanent(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { discardErrors(lifetime, group) })
	err = s.follow(self, group, report)
	f.leaveGroup(group, kill)
	reading.Wait()
	return err
}

// groupOptions returns the options of the kgo client that is the member.
func (f *Fleet) groupOptions(lifetime context.Context, self fleet.Self, s *groupSession) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithContext(lifetime),
		kgo.WithHooks(f.client.diagnosis, f.client.reconnects, s),
		// A description of the group has the client id of each member, and no other name.
		kgo.ClientID(self.Name),
		kgo.ConsumerGroup(f.group),
		kgo.ConsumeTopics(f.client.cfg.Checkpoints),
		kgo.Balancers(memberList{f.client.cfg.Checkpoints, self.Value}),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RetryTimeout(sessionTimeout),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { signal(s.generation) }),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
	}
}

// discardErrors receives the errors that kgo keeps for a reader, so that they do not pile up. The
// hook of groupSession has seen them.
func discardErrors(ctx context.Context, group *kgo.Client) {
	for ctx.Err() == nil {
		if group.PollFetches(ctx).IsClientClosed() {
			return
		}
	}
}

// leaveGroup leaves the group, so that the others take over at once, and closes the client.
func (f *Fleet) leaveGroup(group *kgo.Client, kill func()) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := group.LeaveGroupContext(ctx); err != nil {
		f.client.log.Debug("could not leave the fleet; the others take over when the session times out", "fleet", f.options.Name, "error", err)
		kill() // a request that is under way, or Close waits for it
	}
	group.Close()
	kill()
}

// explainError returns err, an error of a request for the group, with its cause and cure.
func (f *Fleet) explainError(ctx context.Context, err error) error {
	cfg := f.client.cfg
	switch {
	case errors.Is(err, feed.ErrPermanent):
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		err = feed.Permanent(fmt.Errorf("this user may not use the consumer group %q (%w); run '%s --operation Read --group %[1]s'", f.group, err, cfg.aclCommand()))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		err = cfg.errTopicRights(err, cfg.Checkpoints)
	case isMissingTopic(err) && !f.options.Create:
		err = missingCheckpointTopic(f.client, f.options.Replication).errMissing()
	case errors.Is(err, kerr.InvalidSessionTimeout):
		err = feed.Permanent(fmt.Errorf("the brokers do not allow a session timeout of %v in a consumer group (%w); set group.min.session.timeout.ms to at most %d, and "+
			"group.max.session.timeout.ms to at least that", sessionTimeout, err, sessionTimeout.Milliseconds()))
	case errors.Is(err, kerr.InconsistentGroupProtocol), errors.Is(err, kerr.GroupIDNotFound):
		err = feed.Permanent(fmt.Errorf("another program uses the consumer group %q (%w); choose another fleet.name", f.group, err))
	case errors.Is(err, kerr.GroupMaxSizeReached):
		err = feed.Permanent(fmt.Errorf("the brokers do not allow more members in the consumer group %q (%w); raise group.max.size, or divide the feeds among several fleets", f.group, err))
	default:
		err = f.client.explainError(ctx, err)
	}
	return err
}

// memberList is the balancer of the group. It makes the value of each member known to the others, and
// assigns nothing.
type memberList struct {
	topic string
	value func() []byte
}

// protocolName distinguishes the group from those of other programs.
const protocolName = "feedbridge"

// ProtocolName implements [kgo.GroupBalancer].
func (memberList) ProtocolName() string { return protocolName }

// IsCooperative implements [kgo.GroupBalancer].
func (memberList) IsCooperative() bool { return false }

// JoinGroupMetadata implements [kgo.GroupBalancer]. The format is that of consumers, so that the tools of
// Kafka can show the group.
func (l memberList) JoinGroupMetadata([]string, map[string][]int32, int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics, meta.UserData = []string{l.topic}, l.value()
	return meta.AppendTo(nil)
}

// ParseSyncAssignment implements [kgo.GroupBalancer].
func (memberList) ParseSyncAssignment([]byte) (map[string][]int32, error) { return nil, nil }

// MemberBalancer implements [kgo.GroupBalancer].
func (memberList) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	return nothing(members), nil, nil
}

// nothing assigns no partitions to members.
type nothing []kmsg.JoinGroupResponseMember

// Balance implements [kgo.GroupMemberBalancer].
func (n nothing) Balance(map[string]int32) kgo.IntoSyncAssignment { return n }

// IntoSyncAssignment implements [kgo.IntoSyncAssignment].
func (n nothing) IntoSyncAssignment() (all []kmsg.SyncGroupRequestGroupAssignment) {
	empty := kmsg.NewConsumerMemberAssignment()
	for _, member := range n {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = member.MemberID, empty.AppendTo(nil)
		all = append(all, a)
	}
	return all
}

// groupSession is one membership in the group.
type groupSession struct {
	ctx        context.Context // of Join
	bus        *Fleet
	failed     chan error    // capacity 1: the membership has ended, and kgo joins again
	generation chan struct{} // capacity 1: the group has a new generation, and this copy is in it
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// OnGroupManageError is called when the membership has ended by an error. kgo joins again.
func (s *groupSession) OnGroupManageError(err error) {
	if s.ctx.Err() != nil {
		return
	}
	select {
	case s.failed <- s.bus.explainError(s.ctx, err):
	default: // an older one is not reported yet; if this one lasts, it comes again
	}
}

// follow reports the members after each change until ctx ends or a person must act.
func (s *groupSession) follow(self fleet.Self, group *kgo.Client, report func(fleet.Report)) error {
	f := s.bus
	members := 0               // at the last report
	var again <-chan time.Time // when the members are read again, after an error
	var joined time.Time       // when the group last had a new generation
	var note <-chan time.Time  // when the note of this copy is published
	backoff := retry.Backoff{Min: heartbeatInterval / 2, Max: maxDescribe}
	for {
		select {
		case <-s.generation:
			// All members have joined with their present notes.
			joined, note = time.Now(), nil
			// All members ask at once. In a large group they spread their requests.
			if retry.Sleep(s.ctx, rand.N(time.Duration(members+1)*time.Millisecond)) != nil {
				return nil
			}
			backoff = retry.Backoff{Min: heartbeatInterval / 2, Max: maxDescribe}
		case <-again:
		case <-self.Changed:
			group.ForceRebalance() // joins with the new value
			continue
		case <-self.Noted:
			note = time.After(time.Until(joined.Add(noteInterval)))
			continue
		case <-note:
			note = nil
			group.ForceRebalance()
			continue
		case err := <-s.failed:
			if errors.Is(err, feed.ErrPermanent) {
				return err
			}
			report(fleet.Report{Err: err})
			continue
		case <-f.client.reconnects.ctx.Done():
			return f.explainError(s.ctx, kgo.ErrClientClosed)
		case <-s.ctx.Done():
			return nil
		}
		values, stable, err := f.readMembers(s.ctx)
		if err != nil || !stable {
			f.client.log.Debug("cannot read the members of the fleet", "fleet", f.options.Name, "error", err)
			again = time.After(backoff.Next())
			continue
		}
		members, again = len(values), nil
		report(fleet.Report{Members: values})
	}
}

// readMembers returns the members of the group with their values; stable is false while members join.
func (f *Fleet) readMembers(ctx context.Context) (values map[string][]byte, stable bool, err error) {
	ctx, cancel := f.client.withRequestTimeout(ctx)
	defer cancel()
	groups, err := f.client.admin.DescribeGroups(ctx, f.group)
	group := groups[f.group]
	if err = cmp.Or(err, group.Err); err != nil {
		return nil, false, causeOf(ctx, err)
	}
	values = map[string][]byte{}
	for _, member := range group.Members {
		values[member.ClientID] = nil
		if meta, ok := member.Join.AsConsumer(); ok {
			values[member.ClientID] = meta.UserData
		}
	}
	return values, group.State == "Stable", nil
}
