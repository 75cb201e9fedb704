package knowledge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"braid/tracker/wire"
)

// A snapshot has the paths and votes of a Base, with their times, so that votes lose weight while
// it is stored. Version 1, all numbers big-endian:
//
//	"braid paths 1\n"
//	paths: number of interfaces (1), interfaces (10 each, as in a report), number of votes (1), votes
//	votes: host (16), time of the measurement (8, Unix milliseconds), round trip (4, microseconds),
//	       rate (8, bytes per second), loss (4, millionths)
//
// Parsing trusts nothing in it, since it comes from a disk or over a network.
const (
	snapshotMagic = "braid paths 1\n"
	voteLen       = 16 + 8 + 4 + 8 + 4
	lossUnit      = 1e6
	// MaxSnapshot bounds a snapshot in bytes: with the default limits and the longest paths it has
	// 22 MB.
	MaxSnapshot = 32 << 20
	// snapshotVotes is the most votes on a path in a snapshot, whose number has one byte.
	snapshotVotes = 255
	// longestPath is the length of the longest path with its votes.
	longestPath = 2 + wire.MaxInterfaces*wire.InterfaceLen + snapshotVotes*voteLen
	// ahead is how far the clock of another tracker may be ahead.
	ahead = time.Minute
)

// Snapshot writes all paths and votes, and returns the version of the Base. If the caller has this
// version, it writes nil.
func (b *Base) Snapshot(has uint64) (snapshot []byte, version uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.version == has {
		return nil, has
	}
	out := []byte(snapshotMagic)
	be := binary.BigEndian
	for _, s := range b.sources {
		for p := range s.all {
			votes := p.votes[max(0, len(p.votes)-snapshotVotes):]
			if len(votes) == 0 || len(out) > MaxSnapshot-longestPath {
				continue
			}
			out = wire.AppendInterfaces(append(out, byte(len(p.interfaces))), p.interfaces)
			out = append(out, byte(len(votes)))
			for _, v := range votes {
				host := v.host.As16()
				out = be.AppendUint64(append(out, host[:]...), uint64(v.at.UnixMilli()))
				out = be.AppendUint32(out, uint32(v.rtt*1e6+0.5))
				out = be.AppendUint64(out, uint64(v.rate))
				out = be.AppendUint32(out, uint32(v.loss*lossUnit+0.5))
			}
		}
	}
	return out, b.version
}

// Merge adds the new votes of a snapshot as if their hosts had reported here, and returns their
// number. It adds nothing of a malformed snapshot.
func (b *Base) Merge(now time.Time, snapshot []byte) (news int, err error) {
	paths, err := parseSnapshot(snapshot)
	if err != nil {
		return 0, fmt.Errorf("read a snapshot of path knowledge: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range paths {
		news += b.merge(now, p)
	}
	b.changed(news)
	return news, nil
}

func (b *Base) merge(now time.Time, from *path) (news int) {
	if from.forget(now, b.limits.forget); len(from.votes) == 0 {
		return 0
	}
	p := b.path(from.votes[len(from.votes)-1].at, from.interfaces)
	if p == nil {
		return 0
	}
	for _, v := range from.votes {
		if i := p.voteOf(v.host); i >= 0 && !p.votes[i].at.Before(v.at) {
			continue
		}
		if p.vote(v, b.limits.votes) {
			news++
		}
	}
	// There are peers in that AS, or nobody would have reported the path.
	if at, known := b.met[p.dst()]; p.seen.After(at) && (known || len(b.met) < b.limits.ases) {
		b.met[p.dst()] = p.seen
	}
	return news
}

func parseSnapshot(b []byte) (out []*path, err error) {
	if len(b) > MaxSnapshot {
		return nil, fmt.Errorf("longer than %d bytes", MaxSnapshot)
	}
	b, ok := bytes.CutPrefix(b, []byte(snapshotMagic))
	if !ok {
		return nil, errors.New("it does not begin like version 1")
	}
	for len(b) > 0 {
		var p *path
		if p, b, err = parsePath(b); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

var errSnapshotShort = errors.New("it ends too early")

// parsePath reads a path with its votes, sorted by time, and returns the rest of the input.
func parsePath(b []byte) (*path, []byte, error) {
	n := 1 + int(b[0])*wire.InterfaceLen
	if len(b) <= n {
		return nil, nil, errSnapshotShort
	}
	ifs, err := wire.ParseInterfaces(b[1:n])
	if err != nil {
		return nil, nil, err
	}
	votes := int(b[n])
	if b = b[n+1:]; len(b) < votes*voteLen {
		return nil, nil, errSnapshotShort
	}
	p := newPath(ifs, time.Time{})
	for ; votes > 0; votes, b = votes-1, b[voteLen:] {
		v, err := parseVote(b[:voteLen])
		if err != nil {
			return nil, nil, err
		}
		p.vote(v, snapshotVotes)
	}
	return p, b, nil
}

func parseVote(b []byte) (vote, error) {
	be := binary.BigEndian
	host, at := netip.AddrFrom16([16]byte(b)).Unmap(), be.Uint64(b[16:])
	rtt, rate, loss := be.Uint32(b[24:]), be.Uint64(b[28:]), be.Uint32(b[36:])
	tooMuch := time.Duration(rtt)*time.Microsecond > wire.MaxReportRTT ||
		rate > wire.MaxReportRate || loss > lossUnit
	if host.IsUnspecified() || at > 1<<48 || rtt == 0 && rate == 0 || tooMuch {
		return vote{}, fmt.Errorf("impossible vote %x", b)
	}
	return vote{
		host: host, at: time.UnixMilli(int64(at)),
		rtt: float64(rtt) / 1e6, rate: float64(rate), loss: float64(loss) / lossUnit,
	}, nil
}
