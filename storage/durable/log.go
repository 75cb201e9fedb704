package durable

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Log is a file of batches of changes. A batch is written at the end and synced; Rewrite replaces
// all batches with fewer.
//
//	magic     12 bytes, with the version of the format
//	batches   each: its length (4 bytes), a checksum (4 bytes), its content
//
// The checksum is the CRC-32C of the lengths and contents of all batches so far. It covers earlier
// batches too, so the remains of a failed write behind the end never count as a batch.
type Log struct {
	name string
	root *os.Root // of its directory
	lock *os.File
	file *os.File
	size int64 // up to here the file is whole
	sum  uint32
	base int64 // the size after the last Rewrite
}

const (
	logMagic  = "braid log 1\n"
	batchHead = 8
	// slack is how much a log may grow before it is rewritten, however small it is.
	slack = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenLog opens a log or makes it, and waits that long for another process to close it. read gets
// the batches in order; each is valid until it returns. A log that is damaged, or whose batch read
// refuses, is set aside and a new one is made: then damage says why, and the caller has read the
// batches before the damage.
func OpenLog(name string, wait time.Duration, read func(batch []byte) error) (l *Log, damage, err error) {
	lock, err := OpenLocked(name+".lock", os.O_RDWR|os.O_CREATE, 0o600, wait)
	if err != nil {
		return nil, nil, err
	}
	l = &Log{name: filepath.Base(name), lock: lock}
	if l.root, err = os.OpenRoot(filepath.Dir(name)); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	l.file, err = l.root.OpenFile(l.name, os.O_RDWR, 0)
	exists := err == nil
	if exists {
		if damage, err = l.read(read); damage != nil && err == nil {
			err = l.root.Rename(l.name, l.name+AsideSuffix)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && damage != nil {
		err = l.Rewrite(func(func([]byte) error) error { return nil })
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, damage, nil
}

func (l *Log) read(do func(batch []byte) error) (damage, err error) {
	st, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(l.file, 1<<20)
	head := make([]byte, len(logMagic))
	if _, err := io.ReadFull(in, head); err != nil && !isEnd(err) {
		return nil, err
	} else if string(head) != logMagic {
		return fmt.Errorf("%w: it is not a log", ErrDamaged), nil
	}
	l.size = int64(len(logMagic))
	l.base = l.size
	var batch []byte
	for {
		_, err := io.ReadFull(in, head[:batchHead])
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		n := int64(binary.BigEndian.Uint32(head))
		if err == nil && n > st.Size()-l.size-batchHead {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			if int64(cap(batch)) < n {
				batch = make([]byte, n)
			}
			batch = batch[:n]
			_, err = io.ReadFull(in, batch)
		}
		if err != nil && !isEnd(err) {
			return nil, err
		}
		sum := l.sumWith(head[:4], batch)
		if err != nil || sum != binary.BigEndian.Uint32(head[4:]) {
			return fmt.Errorf("%w: the batch at byte %d of %d is not whole", ErrDamaged, l.size, st.Size()), nil
		}
		if err := do(batch); err != nil {
			return fmt.Errorf("the batch at byte %d: %w", l.size, err), nil
		}
		l.size, l.sum = l.size+batchHead+n, sum
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func (l *Log) sumWith(length, batch []byte) uint32 {
	return crc32.Update(crc32.Update(l.sum, castagnoli, length), castagnoli, batch)
}

// Append writes batches; when it returns they are on disk. If it fails, none of them counts.
func (l *Log) Append(batches ...[]byte) error {
	size, sum := l.size, l.sum
	var err error
	for _, b := range batches {
		if err == nil {
			err = l.add(b)
		}
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.size, l.sum = size, sum
		_ = l.file.Truncate(size) // what is left does not count, but may fill the disk
	}
	return err
}

func (l *Log) add(batch []byte) error {
	b := make([]byte, batchHead, batchHead+len(batch))
	binary.BigEndian.PutUint32(b, uint32(len(batch)))
	sum := l.sumWith(b[:4], batch)
	binary.BigEndian.PutUint32(b[4:], sum)
	b = append(b, batch...)
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		return err
	}
	l.size, l.sum = l.size+int64(len(b)), sum
	return nil
}

// Rewrite replaces the log with the batches that write adds. If it fails, the log is the old or the
// new one, whole.
func (l *Log) Rewrite(write func(add func(batch []byte) error) error) error {
	next := &Log{size: int64(len(logMagic))}
	f, err := replace(OS{}, l.root, l.name, func(f *os.File) error {
		next.file = f
		if _, err := f.WriteString(logMagic); err != nil {
			return err
		}
		return write(next.add)
	})
	if f == nil {
		l.base = l.size // try again when the log has doubled
		return err
	}
	if l.file != nil {
		_ = l.file.Close() // the old file has no name any more
	}
	l.file, l.size, l.base, l.sum = f, next.size, next.size, next.sum
	return err
}

// IsLong tells whether a log is worth rewriting: it has more than doubled since the last Rewrite.
func (l *Log) IsLong() bool { return l.size > 2*l.base+slack }

// Close closes the log. A closed log can neither be written nor rewritten.
func (l *Log) Close() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.root.Close(), l.lock.Close())
}
