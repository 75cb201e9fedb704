package client

// Blocks that an earlier download has left on disk: see wire.Disk. The engine holds the peer
// answerable for such a block. So the store hashes its piece itself (see storage.Blocks), and blame
// holds nobody answerable.

// Has implements wire.Disk.
func (s *oneFile) Has(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	return on != nil && on.Has(piece, begin, length)
}

// Read implements wire.Disk.
func (s *oneFile) Read(block []byte, piece int, begin int64) error {
	return s.blocks.Load().Read(block, piece, begin)
}

// untaken is how many bytes of blocks on disk the engine has not got yet.
func (s *oneFile) untaken() int64 {
	if on := s.blocks.Load(); on != nil {
		return on.Untaken()
	}
	return 0
}

// took notes that the engine has got a block. It tells whether the block came from disk.
func (s *oneFile) took(piece int, begin, length int64) bool {
	on := s.blocks.Load()
	if on == nil || !on.Taken(piece, begin, length) {
		return false
	}
	s.fromDisk.Add(length)
	return true
}
