package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/retry"
)

// The time limits of a group. The brokers must allow the session timeout, which they do by
// default (group.min.session.timeout.ms is 6000).
const (
	// sessionTimeout is after how long the group gives the partitions of a member that is
	// silent to others.
	sessionTimeout = 10 * time.Second
	// heartbeatInterval bounds how late a member learns of a change. If a member leaves, the
	// others take over its partitions after that and a join.
	heartbeatInterval = 500 * time.Millisecond
	// handoverTimeout is how long a member waits for the commits of the feeds that it gives up
	// before others may take them over.
	handoverTimeout = 5 * time.Second
	// rebalanceTimeout is how long the group waits for a member to join again.
	rebalanceTimeout = 2 * handoverTimeout
	// leaveTimeout bounds how long Run takes to leave. If it does not succeed, the session
	// times out.
	leaveTimeout = 3 * time.Second
	// partitionCheck is how often the member that divides the partitions looks whether some were
	// added. Until then some feeds may be run by no member.
	partitionCheck = 10 * time.Second
)

// GroupOptions describe the membership of this copy in a fleet.
type GroupOptions struct {
	// Fleet is the name of the fleet; its consumer group is "feedbridge.<Fleet>".
	Fleet string
	// Self is the name of this copy, which no other member has.
	Self string
	// Topics returns the topics that this copy has feeds for. It is called at any time.
	Topics func() *fleet.Topics
	// Create and Replication are for the checkpoint topic, as in [Options].
	Create      bool
	Replication int
}

// GroupMember is a member of a consumer group that divides the partitions of the checkpoint topic
// among the copies of a fleet. The member that is assigned the partition of a topic's checkpoints
// runs the feeds of that topic. It reads no records and commits no offsets.
type GroupMember struct {
	client  *client
	topic   *checkpointTopic
	options GroupOptions
	group   string
}

// GroupMember returns a member of a fleet. It takes part while [GroupMember.Run] runs.
func (c *Conn) GroupMember(o GroupOptions) *GroupMember {
	return &GroupMember{client: c.client, topic: c.checkpoints, options: o, group: "feedbridge." + o.Fleet}
}

// Run takes part in the fleet until ctx ends, and then leaves it. It creates the checkpoint topic
// if that is missing and may be created.
//
// It calls assigned whenever the assignment has changed, from one goroutine at a time; the first
// time when this copy is a member. When this copy loses partitions in a rebalance, the others get
// them once assigned has returned, or after 5 s. While no broker can be reached the last
// assignment remains. If the group has removed this copy, as after a pause of more than 10 s, the
// copy is assigned nothing until it is a member again.
//
// Run returns nil after ctx has ended, within 4 s. Otherwise it returns an error that requires action
// by a person, which matches [feed.ErrPermanent], or that the [Conn] was closed.
func (m *GroupMember) Run(ctx context.Context, assigned func(fleet.Assignment)) error {
	partitions, err := m.ensureTopic(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	// The group is left after ctx has ended.
	lifetime, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := newGroupState(ctx, m)
	group, err := kgo.NewClient(append(slices.Clone(m.client.opts), m.groupOptions(lifetime, s)...)...)
	if err != nil {
		return feed.Permanent(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { discardErrors(lifetime, group) })
	reading.Go(func() { m.watchRoster(ctx, s) })
	err = s.report(ctx, assigned, groupRoster{partitions: partitions})
	stop()
	m.leaveGroup(group, kill)
	reading.Wait()
	return err
}

// ensureTopic returns the number of partitions of the checkpoint topic, once it exists. It returns
// 0 and no error if ctx has ended.
func (m *GroupMember) ensureTopic(ctx context.Context) (int, error) {
	backoff := retry.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	for failed := false; ; {
		d, err := m.topic.describeTopic(ctx, m.options.Replication, m.options.Create)
		if err == nil {
			return len(d.Partitions), nil
		}
		if ctx.Err() != nil {
			return 0, nil
		}
		if err = m.explainError(ctx, err); errors.Is(err, feed.ErrPermanent) {
			return 0, err
		}
		if m.client.closed.Load() {
			return 0, err
		}
		if !failed {
			failed = true
			m.warn(err)
		}
		if backoff.Wait(ctx) != nil {
			return 0, nil
		}
	}
}

// groupOptions returns the options of the kgo client that is the member.
func (m *GroupMember) groupOptions(lifetime context.Context, s *groupState) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithContext(lifetime),
		kgo.WithHooks(m.client.diagnosis, m.client.reconnects, s),
		// A description of the group has the client id of each member, and no other name.
		kgo.ClientID(m.options.Self),
		kgo.ConsumerGroup(m.group),
		kgo.ConsumeTopics(m.client.cfg.Checkpoints),
		kgo.Balancers(keepingBalancer{feedBalancer{kgo.CooperativeStickyBalancer(), m.client.cfg.Checkpoints, m.countTopics}, s}),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.RetryTimeout(sessionTimeout),
		kgo.MetadataMaxAge(partitionCheck),
		kgo.DisableAutoCommit(),
		// A partition without an offset is not fetched.
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.OnPartitionsRevoked(s.onRevoked),
		// OnGroupManageError decides whether they are lost.
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
	}
}

// countTopics returns the number of topics of this copy's feeds in each partition, for a number of
// partitions.
func (m *GroupMember) countTopics(partitions int) []int {
	counts := make([]int, partitions)
	if partitions > 0 {
		for topic := range m.options.Topics().Names() {
			counts[partitionOf(topic, partitions)]++
		}
	}
	return counts
}

// discardErrors receives the errors that kgo keeps for a reader, so that they do not pile up. The
// hook of groupState has seen them.
func discardErrors(ctx context.Context, group *kgo.Client) {
	for ctx.Err() == nil {
		if group.PollFetches(ctx).IsClientClosed() {
			return
		}
	}
}

// leaveGroup leaves the group, so that the others take over at once, and closes the client.
func (m *GroupMember) leaveGroup(group *kgo.Client, kill func()) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := group.LeaveGroupContext(ctx); err != nil {
		m.client.log.Debug("could not leave the fleet; the others take over when the session times out", "fleet", m.options.Fleet, "error", err)
		kill() // a request that is under way, or Close waits for it
	}
	group.Close()
	kill()
}

func (m *GroupMember) warn(err error) {
	m.client.log.Warn("this copy cannot take part in its fleet; retrying", "fleet", m.options.Fleet, "error", err)
}

// explainError returns err, an error of a request for the group, with its cause and cure.
func (m *GroupMember) explainError(ctx context.Context, err error) error {
	cfg := m.client.cfg
	switch {
	case errors.Is(err, feed.ErrPermanent):
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		err = feed.Permanent(fmt.Errorf("this user may not use the consumer group %q (%w); run '%s --operation Read --group %[1]s'", m.group, err, cfg.aclCommand()))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		err = feed.Permanent(fmt.Errorf("this user lacks a right to topic %s (%w); run '%s --operation Read --operation Write --operation Create --operation DescribeConfigs --topic %[1]s'",
			cfg.Checkpoints, err, cfg.aclCommand()))
	case isMissingTopic(err) && !m.options.Create:
		err = missingCheckpointTopic(m.client, m.options.Replication).errMissing()
	case errors.Is(err, kerr.InvalidSessionTimeout):
		err = feed.Permanent(fmt.Errorf("the brokers do not allow a session timeout of %v in a consumer group (%w); set group.min.session.timeout.ms to at most %d, and "+
			"group.max.session.timeout.ms to at least that", sessionTimeout, err, sessionTimeout.Milliseconds()))
	case errors.Is(err, kerr.InconsistentGroupProtocol), errors.Is(err, kerr.GroupIDNotFound):
		err = feed.Permanent(fmt.Errorf("another program uses the consumer group %q (%w); choose another fleet.name", m.group, err))
	case errors.Is(err, kerr.GroupMaxSizeReached):
		err = feed.Permanent(fmt.Errorf("the brokers do not allow more members in the consumer group %q (%w); raise group.max.size, or divide the feeds among several fleets", m.group, err))
	default:
		err = m.client.explainError(ctx, err)
	}
	return err
}

// groupState has the partitions that the group has assigned to this copy. kgo reports changes from its own
// goroutines, and report passes them on.
type groupState struct {
	ctx     context.Context // of Run
	member  *GroupMember
	fatal   chan error       // capacity 1
	rosters chan groupRoster // the newest, which watchRoster replaces
	changed chan struct{}    // capacity 1: something below has changed
	refresh chan struct{}    // capacity 1: the roster may have changed

	mu sync.Mutex
	// partitions are those of this copy.
	partitions map[int32]bool
	joined     bool
	// restarted is set by an error: the next assignment is not an addition to the one before.
	restarted bool
	warned    bool
	// version counts the changes, and reported is the newest one for which assigned has
	// returned. passed is closed and replaced when reported changes.
	version, reported int
	passed            chan struct{}
}

func newGroupState(ctx context.Context, m *GroupMember) *groupState {
	return &groupState{
		ctx: ctx, member: m, fatal: make(chan error, 1), rosters: make(chan groupRoster, 1),
		changed: make(chan struct{}, 1), refresh: make(chan struct{}, 1),
		partitions: map[int32]bool{}, passed: make(chan struct{}),
	}
}

// keepingBalancer is the balancer of franz-go. After an error franz-go forgets what it was assigned,
// and would be assigned other partitions when the brokers answer again. This copy has kept its
// feeds, so it says that it has their partitions.
type keepingBalancer struct {
	kgo.GroupBalancer
	state *groupState
}

func (b keepingBalancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	s := b.state
	s.mu.Lock()
	if s.restarted && len(s.partitions) > 0 {
		current = map[string][]int32{s.member.client.cfg.Checkpoints: slices.Sorted(maps.Keys(s.partitions))}
	}
	s.mu.Unlock()
	return b.GroupBalancer.JoinGroupMetadata(topics, current, generation)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// onAssigned is called when this copy is a member of a new generation of the group, also if added
// is empty.
func (s *groupState) onAssigned(_ context.Context, group *kgo.Client, added map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.partitions
	if s.restarted {
		s.partitions, s.restarted = map[int32]bool{}, false
	}
	for _, n := range added[s.member.client.cfg.Checkpoints] {
		s.partitions[n] = true
	}
	for n := range before {
		if !s.partitions[n] {
			// The others get it when this copy joins without it, which franz-go does for the
			// partitions that it knows of only.
			group.ForceRebalance()
			break
		}
	}
	s.joined, s.warned = true, false
	s.version++
	signal(s.changed)
	signal(s.refresh)
}

// onRevoked is called before the partitions lost are given to others. It waits until assigned has
// returned, but not longer than handoverTimeout.
func (s *groupState) onRevoked(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	partitions := lost[s.member.client.cfg.Checkpoints]
	if len(partitions) == 0 {
		return
	}
	s.mu.Lock()
	for _, n := range partitions {
		delete(s.partitions, n)
	}
	s.version++
	version := s.version
	signal(s.changed)
	s.mu.Unlock()
	s.awaitReported(version)
}

// awaitReported waits until assigned has returned for a version.
func (s *groupState) awaitReported(version int) {
	timeout := time.NewTimer(handoverTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		done, passed := s.reported >= version, s.passed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-passed:
		case <-timeout.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// OnGroupManageError is called when the membership has ended by an error. kgo joins again.
func (s *groupState) OnGroupManageError(err error) {
	if s.ctx.Err() != nil {
		return
	}
	expelled := errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.FencedInstanceID)
	if err = s.member.explainError(s.ctx, err); errors.Is(err, feed.ErrPermanent) {
		select {
		case s.fatal <- err:
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarted = true
	if expelled && s.joined {
		s.partitions, s.joined = map[int32]bool{}, false
		s.version++
		signal(s.changed)
	}
	if !s.warned {
		s.warned = true
		s.member.warn(err)
	}
}

// report calls assigned after every change until ctx ends or a person must act.
func (s *groupState) report(ctx context.Context, assigned func(fleet.Assignment), roster groupRoster) error {
	for {
		select {
		case <-s.changed:
		case roster = <-s.rosters:
		case err := <-s.fatal:
			return err
		case <-s.member.client.reconnects.ctx.Done():
			return s.member.explainError(ctx, kgo.ErrClientClosed)
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		version, everJoined := s.version, s.version > 0
		a := roster.assignment(s.member.options.Self, maps.Clone(s.partitions), s.joined)
		s.mu.Unlock()
		if !everJoined {
			continue
		}
		assigned(a)
		s.mu.Lock()
		s.reported = version
		close(s.passed)
		s.passed = make(chan struct{})
		s.mu.Unlock()
	}
}

// groupRoster has all members of the group, and the partitions that each of them owns.
type groupRoster struct {
	// partitions is the number of partitions by which topics are divided.
	partitions int
	members    []string         // sorted
	owners     map[int32]string // by partition
}

// assignment returns the assignment, for the partitions of this copy and a roster that may be
// older.
func (r groupRoster) assignment(self string, own map[int32]bool, joined bool) fleet.Assignment {
	members := slices.DeleteFunc(slices.Clone(r.members), func(name string) bool { return name == self })
	if joined {
		members = append(members, self)
		slices.Sort(members)
	}
	return fleet.Assignment{Self: self, Members: members, Owner: func(topic string) string {
		n := partitionOf(topic, r.partitions)
		if own[n] {
			return self
		}
		if name := r.owners[n]; name != self {
			return name
		}
		return ""
	}}
}

// watchRoster reads the roster of the group after each rebalance.
func (m *GroupMember) watchRoster(ctx context.Context, s *groupState) {
	var members int
	for {
		select {
		case <-s.refresh:
		case <-ctx.Done():
			return
		}
		// All members ask at once. In a large group they spread their requests.
		if spread := time.Duration(members) * time.Millisecond; spread > 0 {
			if retry.Sleep(ctx, rand.N(spread)) != nil {
				return
			}
		}
		backoff := retry.Backoff{Min: 250 * time.Millisecond, Max: time.Minute}
		for {
			roster, stable, err := m.readRoster(ctx)
			if err != nil {
				m.client.log.Debug("cannot read who runs the feeds of the fleet", "fleet", m.options.Fleet, "error", err)
			} else if stable {
				members = len(roster.members)
				select { // in place of an older one
				case <-s.rosters:
				default:
				}
				s.rosters <- roster
				break
			}
			if backoff.Wait(ctx) != nil {
				return
			}
		}
	}
}

// readRoster returns the members of the group and their partitions; stable is false while the group
// divides them.
func (m *GroupMember) readRoster(ctx context.Context) (r groupRoster, stable bool, err error) {
	c := m.client
	bounded, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	groups, err := c.admin.DescribeGroups(bounded, m.group)
	if err == nil {
		err = groups[m.group].Err
	}
	if err != nil {
		return r, false, causeOf(bounded, err)
	}
	if groups[m.group].State != "Stable" {
		return r, false, nil
	}
	r.owners = map[int32]string{}
	var last int32
	for _, member := range groups[m.group].Members {
		r.members = append(r.members, member.ClientID)
		assigned, _ := member.Assigned.AsConsumer()
		if assigned == nil {
			continue
		}
		for _, t := range assigned.Topics {
			if t.Topic != c.cfg.Checkpoints {
				continue
			}
			for _, n := range t.Partitions {
				r.owners[n], last = member.ClientID, max(last, n)
			}
		}
	}
	slices.Sort(r.members)
	r.members = slices.Compact(r.members)
	d, err := c.describeTopic(ctx, c.cfg.Checkpoints)
	r.partitions = len(d.Partitions)
	// A broker may not know of added partitions yet.
	return r, int(last) < r.partitions, err
}
