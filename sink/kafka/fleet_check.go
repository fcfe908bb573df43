package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Check returns the number of members of the fleet, or the error for which this copy could not
// join. It does not join, and creates nothing. A group that does not exist has no members and is no
// error, and neither is a missing checkpoint topic that may be created.
func (m *GroupMember) Check(ctx context.Context) (members int, err error) {
	ctx, cancel := m.client.withRequestTimeout(ctx)
	defer cancel()
	_, err = m.topic.describeTopic(ctx, m.options.Replication, false)
	if isMissingTopic(err) && m.options.Create {
		err = missingCheckpointTopic(m.client, m.options.Replication).mayCreate(ctx)
	}
	if err == nil {
		err = m.tryHeartbeat(ctx)
	}
	if err == nil {
		members, err = m.countMembers(ctx)
	}
	if err != nil {
		return 0, m.explainError(ctx, causeOf(ctx, err))
	}
	return members, nil
}

// tryHeartbeat returns an error if this user may not join the group. A heartbeat needs the same
// right, and that of no member changes nothing.
func (m *GroupMember) tryHeartbeat(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation = m.group, -1
	resp, err := req.RequestWith(ctx, m.client.kgo)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	for _, expected := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.GroupIDNotFound, kerr.RebalanceInProgress} {
		if errors.Is(err, expected) {
			return nil
		}
	}
	return err
}

// countMembers returns the number of members of the group, or an error if it is the group of another
// kind of program.
func (m *GroupMember) countMembers(ctx context.Context) (int, error) {
	groups, err := m.client.admin.DescribeGroups(ctx, m.group)
	if err == nil {
		err = groups[m.group].Err
	}
	g := groups[m.group]
	switch {
	case errors.Is(err, kerr.GroupIDNotFound): // brokers since 4.0 say so
		return 0, nil
	case err != nil:
		return 0, err
	case len(g.Members) > 0 && (g.ProtocolType != "consumer" || g.Protocol != "" && g.Protocol != "cooperative-sticky"):
		return 0, kerr.InconsistentGroupProtocol
	}
	return len(g.Members), nil
}
