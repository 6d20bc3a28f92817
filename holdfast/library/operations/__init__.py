"""Operations of the library over HTTP, one table for each memory."""
